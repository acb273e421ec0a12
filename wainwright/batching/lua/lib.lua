-- What all scripts share. A script is this text, then its own; `wainwright.batching.store` joins them.
-- ARGV: prefix, idle_ms, max_ms, max_items, then the script's own arguments, found in A[1], A[2], ...
-- Key names and value formats: wainwright/keys.py. Window rules: wainwright/batching/windows.py.
local P = ARGV[1]
local IDLE, MAX, CAP = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local A = {}
for i = 5, #ARGV do A[#A + 1] = ARGV[i] end
local clock = redis.call('TIME')
local NOW = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function int(n) return string.format('%.0f', n) end

-- Locks -----------------------------------------------------------------------------------------------------------
local function holds(name, holder, fence)
  local held = redis.call('HMGET', P .. 'lock:' .. name, 'holder', 'fence')
  return held[1] == holder and held[2] == fence
end

-- Windows ---------------------------------------------------------------------------------------------------------
-- Opens the NodePool's window, or moves its deadline for one new item. extends: false for retries, which join an open
-- window without extending it. Answers false when the NodePool is not in use (deleted, or unknown).
local function touch_window(pool, extends)
  local uid = redis.call('HGET', P .. 'nodepools', pool)
  if not uid then return false end
  local key = P .. 'window:' .. pool
  local opened = tonumber(redis.call('HGET', key, 'opened_ms') or nil)
  if not opened then
    opened = NOW
    redis.call('HSET', key, 'opened_ms', int(NOW), 'limit_ms', int(NOW + MAX), 'nodepool_uid', uid, 'items', '0')
    extends = true
  end
  local items = redis.call('HINCRBY', key, 'items', 1)
  if items >= CAP then
    redis.call('HSET', key, 'due_ms', int(NOW))
    redis.call('ZADD', P .. 'windows', int(NOW), pool)
  elseif extends then
    local due = math.min(NOW + IDLE, opened + MAX)
    redis.call('HSET', key, 'due_ms', int(due))
    redis.call('ZADD', P .. 'windows', int(due), pool)
  end
  return true
end

-- Appends a pod that is not in `seen`; answers its entry id, or nil when the NodePool is not in use.
local function enqueue(pool, uid, pod, extends)
  if not touch_window(pool, extends) then return nil end
  local id = redis.call('XADD', P .. 'pending:' .. pool, '*', 'v', '1', 'uid', uid, 'pod', pod)
  redis.call('HSET', P .. 'seen', uid, pool .. '/' .. id)
  return id
end

-- Gates -----------------------------------------------------------------------------------------------------------
local function wake(batch, outcome)
  redis.call('XADD', P .. 'gates', 'MAXLEN', '~', '1000', '*', 'v', '1', 'batch', batch, 'outcome', outcome)
end

-- Opens the gate of one item: `seen` must still hold exactly its entry.
local function leave_seen(uid, pool, entry)
  if redis.call('HGET', P .. 'seen', uid) == pool .. '/' .. entry then
    redis.call('HDEL', P .. 'seen', uid)
    return true
  end
  return false
end

-- Batches ---------------------------------------------------------------------------------------------------------
-- Ends a batch on whatever path: opens the gates of its items, keeps the record a day. Idempotent.
local function flush(batch, outcome)
  local key = P .. 'batch:' .. batch
  local record = redis.call('HMGET', key, 'state', 'nodepool', 'items')
  if not record[1] or record[1] == 'done' then return false end
  for _, item in ipairs(cjson.decode(record[3])) do leave_seen(item[1], record[2], item[3]) end
  redis.call('HSET', key, 'state', 'done', 'outcome', outcome, 'done_ms', int(NOW))
  redis.call('ZREM', P .. 'batches:' .. record[1], batch)
  redis.call('ZADD', P .. 'batches:done', int(NOW), batch)
  redis.call('ZREMRANGEBYSCORE', P .. 'batches:done', '-inf', int(NOW - 86400000))
  redis.call('PEXPIRE', key, 86400000)
  redis.call('DEL', key .. ':effects')
  wake(batch, outcome)
  return true
end

-- One effect of a batch is over; with the last one the batch is done. An effect is a claim's name or `nominate`.
local function effect_over(batch, effect)
  redis.call('SREM', P .. 'batch:' .. batch .. ':effects', effect)
  if redis.call('HGET', P .. 'batch:' .. batch, 'state') == 'planned'
    and redis.call('SCARD', P .. 'batch:' .. batch .. ':effects') == 0 then
    flush(batch, 'carried out')
  end
end

-- Decisions -------------------------------------------------------------------------------------------------------
local function note(what, about, why, by)
  redis.call('XADD', P .. 'decisions', 'MAXLEN', '~', '10000', '*', 'v', '1', 'what', what, 'about', about, 'why', why,
    'by', by)
end

local function note_pod(pod, uid, what, why, plan, claim, node)
  local key = P .. 'pod:' .. pod
  redis.call('XADD', key, 'MAXLEN', '~', '50', '*', 'v', '1', 'uid', uid, 'what', what, 'why', why, 'plan', plan,
    'claim', claim, 'node', node)
  redis.call('PEXPIRE', key, 86400000)
end

-- Pods of a claim -------------------------------------------------------------------------------------------------
-- Takes a pod out of the plan for `target` (`claim/NAME`) and, if the view still shows it provisionable, queues it
-- anew: its old entry leaves `seen` (its gate opens), a new one enters. Where its NodePool is gone, the first one in
-- use takes it. Answers true when it was queued.
local function requeue_pod(uid, meta, target, why)
  local pod, pool, entry = string.match(meta, '^[^|]*|([^|]*)|([^|]*)|[^|]*|([^|]*)$')
  local held = redis.call('HGET', P .. 'planned', uid)
  if held and string.match(held, '^%S+') ~= target then return false end
  if held then redis.call('HDEL', P .. 'planned', uid) end
  redis.call('ZREM', P .. 'nominated', uid)
  leave_seen(uid, pool, entry)
  if redis.call('HEXISTS', P .. 'view:pending', uid) == 0 or redis.call('HEXISTS', P .. 'seen', uid) == 1 then
    return false
  end
  if redis.call('HEXISTS', P .. 'nodepools', pool) == 0 then
    local pools = redis.call('HKEYS', P .. 'nodepools')
    table.sort(pools)
    pool = pools[1]
  end
  if not pool or not enqueue(pool, uid, pod, true) then return false end
  note_pod(pod, uid, 'queued anew', why, '', '', '')
  return true
end
