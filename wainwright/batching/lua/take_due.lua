-- random token, most pods: moves retries that are due into windows and batches
-- → {pods taken, batch ids…}; pods taken equals `most` when more may be due
-- Nothing moves while the view is incomplete: it could not say who still waits.
if redis.call('HGET', P .. 'view:meta', 'complete') ~= '1' then return {0} end
local retry, retries = P .. 'retry', P .. 'retries'

local function of_each(command, key, uids)
  local all = {}
  for first = 1, #uids, 500 do
    local part = redis.call(command, key, unpack(uids, first, math.min(first + 499, #uids)))
    for i, value in ipairs(part) do all[first + i - 1] = value end
  end
  return all
end

-- A change makes those due that were last tried before it; not earlier than a second after that try.
local woken = redis.call('HMGET', P .. 'retry:woken', 'at_ms', 'applied_ms')
local at = tonumber(woken[1])
if at and at > (tonumber(woken[2]) or 0) then
  local waiting = redis.call('ZRANGEBYSCORE', retry, '(' .. int(NOW), '+inf', 'WITHSCORES')
  local uids = {}
  for i = 1, #waiting, 2 do uids[#uids + 1] = waiting[i] end
  for i, text in ipairs(of_each('HMGET', retries, uids)) do
    local last = tonumber(string.match(text or '', '"last_ms":%s*(%d+)')) or 0
    if last <= at and last + RETRY_PAUSE < tonumber(waiting[2 * i]) then
      redis.call('ZADD', retry, int(last + RETRY_PAUSE), uids[i])
    end
  end
  redis.call('HSET', P .. 'retry:woken', 'applied_ms', int(at))
end

-- Those that are placed or gone leave no trace in `retries` (it keeps the attempts of those being tried).
if redis.call('HLEN', retries) > redis.call('ZCARD', retry) then
  for _, uid in ipairs(redis.call('HKEYS', retries)) do
    if not redis.call('ZSCORE', retry, uid) and redis.call('HEXISTS', P .. 'view:pending', uid) == 0 then
      redis.call('HDEL', retries, uid)
    end
  end
end

local uids = redis.call('ZRANGEBYSCORE', retry, '-inf', int(NOW), 'LIMIT', '0', A[2])
local texts, pending = of_each('HMGET', retries, uids), of_each('HMGET', P .. 'view:pending', uids)
local seen, planned = of_each('HMGET', P .. 'seen', uids), of_each('HMGET', P .. 'planned', uids)
local fallback, reply, own, order = stand_in({}), {#uids}, {}, {}
for i, uid in ipairs(uids) do
  local record = texts[i] and cjson.decode(texts[i]) or {}
  local pool = record.pool
  if not pool or redis.call('HEXISTS', P .. 'nodepools', pool) == 0 then pool = fallback end
  if not pending[i] then
    redis.call('ZREM', retry, uid)
    redis.call('HDEL', retries, uid)
  elseif seen[i] or planned[i] then
    redis.call('ZREM', retry, uid)
  elseif not pool then
    redis.call('ZADD', retry, int(NOW + 5000), uid)
  else
    redis.call('ZREM', retry, uid)
    if own[pool] == nil then
      own[pool] = redis.call('EXISTS', P .. 'window:' .. pool) == 0
      order[#order + 1] = pool
    end
    enqueue(pool, uid, pending[i], false)
  end
end
for _, pool in ipairs(order) do
  local part = 0
  while own[pool] and redis.call('EXISTS', P .. 'window:' .. pool) == 1 do
    part = part + 1
    reply[#reply + 1] = close_window(pool, 'retry', A[1] .. part)
  end
end
return reply
