-- epoch, fence: the pods that wait for capacity and are in no queue, live plan, retry set, and not set aside.
-- What `seen` says is held against the streams and batches it points to: where those were deleted by hand, the pod leaves
-- `seen` (its gate opens) and counts as missing, too.
-- → {'ok', uid, namespace/name, ...}, {'incomplete'}, or as view_apply {'epoch'}, {'fenced', fence}
local held = redis.call('HMGET', P .. 'view:meta', 'epoch', 'fence', 'complete')
if held[2] and tonumber(held[2]) > tonumber(A[2]) then return {'fenced', held[2]} end
if held[1] ~= A[1] or held[2] ~= A[2] then return {'epoch'} end
if held[3] ~= '1' then return {'incomplete'} end

local seen, pools, places = redis.call('HGETALL', P .. 'seen'), {}, {}
for i = 2, #seen, 2 do pools[string.match(seen[i], '^(.*)/[^/]*$') or ''] = true end
for pool in pairs(pools) do
  for _, entry in ipairs(redis.call('XRANGE', P .. 'pending:' .. pool, '-', '+')) do places[pool .. '/' .. entry[1]] = true end
end
if #seen > 0 then
  for _, state in ipairs({'closed', 'planned'}) do
    for _, batch in ipairs(redis.call('ZRANGE', P .. 'batches:' .. state, 0, -1)) do
      local record = redis.call('HMGET', P .. 'batch:' .. batch, 'nodepool', 'items')
      for _, item in ipairs(record[2] and cjson.decode(record[2]) or {}) do places[record[1] .. '/' .. item[3]] = true end
    end
  end
end
local known, lost = {}, false
for i = 1, #seen, 2 do
  if places[(string.gsub(seen[i + 1], '!$', ''))] then
    known[seen[i]] = true
  else
    redis.call('HDEL', P .. 'seen', seen[i])
    lost = true
  end
end
if lost then wake('', 'entries lost') end

local pending = redis.call('HGETALL', P .. 'view:pending')
for _, uid in ipairs(redis.call('HKEYS', P .. 'planned')) do known[uid] = true end
for _, uid in ipairs(redis.call('ZRANGE', P .. 'retry', 0, -1)) do known[uid] = true end
for _, field in ipairs(redis.call('HKEYS', P .. 'dead')) do
  if string.sub(field, 1, 4) == 'pod/' then known[string.sub(field, 5)] = true end
end
local reply = {'ok'}
for i = 1, #pending, 2 do
  if not known[pending[i]] then
    reply[#reply + 1] = pending[i]
    reply[#reply + 1] = pending[i + 1]
  end
end
return reply
