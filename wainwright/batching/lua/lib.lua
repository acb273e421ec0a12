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

-- Gates -----------------------------------------------------------------------------------------------------------
local function wake(batch, outcome)
  redis.call('XADD', P .. 'gates', 'MAXLEN', '~', '1000', '*', 'v', '1', 'batch', batch, 'outcome', outcome)
end

-- Ends the stay of one item in `seen`, which opens its gate: `seen` must hold exactly its entry, or its entry with the
-- mark `!` (released early, see `retire_pool`: the gate is open, the pod still counts as queued).
local function leave_seen(uid, pool, entry)
  local held = redis.call('HGET', P .. 'seen', uid)
  local mine = pool .. '/' .. entry
  if held == mine or held == mine .. '!' then
    redis.call('HDEL', P .. 'seen', uid)
    return true
  end
  return false
end

-- What is set aside -----------------------------------------------------------------------------------------------
-- id: `<kind>/<id>`, e.g. `pod/UID`. Bytes that are no ASCII are masked: whoever reads it must be able to decode it.
local function bury(id, reason, what)
  local text = string.gsub(what, '[^ -~]', '?')
  redis.call('HSET', P .. 'dead', id, cjson.encode({reason = reason, at_ms = NOW, what = text}))
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

-- Windows ---------------------------------------------------------------------------------------------------------
-- Opens the NodePool's window, or moves its deadline, for `count` new items (default 1). extends: false for retries,
-- which join an open window without extending it. A window that is due already is not extended any more: it would
-- close even later. Answers false when the NodePool is not in use (deleted, or unknown); else true, and whether the
-- window opened or became full with this. Either wakes the holders of shards by the stream `opened`: these are the
-- only two ways in which a deadline comes nearer.
local function touch_window(pool, extends, count)
  local uid = redis.call('HGET', P .. 'nodepools', pool)
  if not uid then return false end
  count = count or 1
  local key = P .. 'window:' .. pool
  local window = redis.call('HMGET', key, 'opened_ms', 'due_ms', 'items')
  local opened, due, items = tonumber(window[1]), tonumber(window[2]), tonumber(window[3])
  local opens = not opened
  if opens then opened, due, items, extends = NOW, NOW + MAX, 0, true end
  if extends and (opens or NOW < due) then due = math.min(NOW + IDLE, opened + MAX) end
  local fills = items < CAP and items + count >= CAP
  items = items + count
  if items >= CAP then due = math.min(due, NOW) end
  if opens then
    redis.call('HSET', key, 'nodepool_uid', uid, 'opened_ms', int(opened), 'limit_ms', int(opened + MAX))
  end
  redis.call('HSET', key, 'due_ms', int(due), 'items', int(items))
  redis.call('ZADD', P .. 'windows', int(due), pool)
  if opens or fills then
    redis.call('XADD', P .. 'opened', 'MAXLEN', '~', '100', '*', 'v', '1', 'nodepool', pool, 'due_ms', int(due))
  end
  return true, opens or fills
end

-- Appends a pod that is not in `seen`; answers its entry id, or nil when the NodePool is not in use.
local function enqueue(pool, uid, pod, extends)
  if not touch_window(pool, extends) then return nil end
  local id = redis.call('XADD', P .. 'pending:' .. pool, '*', 'v', '1', 'uid', uid, 'pod', pod)
  redis.call('HSET', P .. 'seen', uid, pool .. '/' .. id)
  return id
end

-- The NodePool in use that takes what another leaves: the first of `preferred`, else the first by name; nil: none.
local function stand_in(preferred)
  for _, name in ipairs(preferred) do
    if redis.call('HEXISTS', P .. 'nodepools', name) == 1 then return name end
  end
  local pools = redis.call('HKEYS', P .. 'nodepools')
  table.sort(pools)
  return pools[1]
end

-- True unless a complete view says that the pod is not provisionable any more.
local function may_be_pending(uid)
  return redis.call('HGET', P .. 'view:meta', 'complete') ~= '1' or redis.call('HEXISTS', P .. 'view:pending', uid) == 1
end

-- The fields of a stream entry as a table, and what is wrong with it (nil: nothing).
local function read_entry(entry)
  local fields, flat = {}, entry[2]
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  if fields.v ~= '1' then return fields, 'unknown version of a stream entry: ' .. (fields.v or 'none') end
  if not string.match(fields.uid or '', '^[%w%-%._:]+$') then return fields, 'stream entry without a usable uid' end
  if not string.match(fields.pod or '', '^[%w%-%._:]+/[%w%-%._:]+$') then
    return fields, 'stream entry without namespace/name in pod'
  end
  return fields, nil
end

-- Deletes entries of a stream by id.
local function delete_entries(stream, ids)
  for first = 1, #ids, 500 do
    redis.call('XDEL', stream, unpack(ids, first, math.min(first + 499, #ids)))
  end
end

local function base36(n)
  local digits, text = '0123456789abcdefghijklmnopqrstuvwxyz', ''
  repeat
    local digit = n % 36
    text = string.sub(digits, digit + 1, digit + 1) .. text
    n = (n - digit) / 36
  until n == 0
  return text
end

-- Turns the oldest max_items entries into a batch record; the rest becomes the next window, due at once if it is full
-- again. Entries that cannot be read go to `dead` and never stop the others; what they hold in `seen` is let go, so
-- that a resync finds the pod. kind: fresh or retry (scored behind all fresh ones). Answers the batch's id, `''` when
-- nothing usable was queued, and the number of its items.
local function close_window(pool, kind, token)
  local key, stream = P .. 'window:' .. pool, P .. 'pending:' .. pool
  local window = redis.call('HMGET', key, 'opened_ms', 'due_ms', 'nodepool_uid')
  local opened = tonumber(window[1]) or NOW
  local items, ids = {}, {}
  for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', int(CAP))) do
    local id = entry[1]
    local fields, fault = read_entry(entry)
    ids[#ids + 1] = id
    if fault then
      bury('entry/' .. pool .. '/' .. id, fault, table.concat(entry[2], ' '))
      if fields.uid then leave_seen(fields.uid, pool, id) end
    else
      items[#items + 1] = {fields.uid, fields.pod, id}
    end
  end
  local batch = ''
  if #items > 0 then
    batch = pool .. '-' .. base36(NOW) .. '-' .. token
    redis.call('HSET', P .. 'batch:' .. batch, 'state', 'closed', 'nodepool', pool, 'nodepool_uid', window[3] or '',
      'kind', kind, 'opened_ms', int(opened), 'due_ms', window[2] or int(NOW), 'closed_ms', int(NOW),
      'window_ms', int(NOW - opened), 'size', int(#items), 'items', cjson.encode(items))
    redis.call('ZADD', P .. 'batches:closed', int(kind == 'retry' and NOW + 1e13 or NOW), batch)
    note('batch closed', batch, #items .. ' pods, window ' .. int(NOW - opened) .. ' ms, ' .. kind, 'window')
  end
  delete_entries(stream, ids)
  local rest = redis.call('XLEN', stream)
  if rest == 0 then
    redis.call('DEL', key)
    redis.call('ZREM', P .. 'windows', pool)
  else
    local due = rest >= CAP and NOW or NOW + math.min(IDLE, MAX)
    redis.call('HSET', key, 'opened_ms', int(NOW), 'limit_ms', int(NOW + MAX), 'due_ms', int(due), 'items', int(rest))
    redis.call('ZADD', P .. 'windows', int(due), pool)
  end
  return batch, #items
end

-- Retries ---------------------------------------------------------------------------------------------------------
local RETRY_PAUSE = 1000

-- When a pod that was tried at last_ms (the time of the view it was tried with) is tried again: at due, or, if something
-- that could help has changed since then, a second after that try.
local function next_try(due, last)
  local woken = tonumber(redis.call('HGET', P .. 'retry:woken', 'at_ms'))
  if woken and last <= woken then return math.min(due, last + RETRY_PAUSE) end
  return due
end

-- NodePools out of use --------------------------------------------------------------------------------------------
-- Ends what a NodePool that is not in use any more (name and UID) still has: its window closes, the gates of its queued
-- items and of its batches open. Items of live batches stay in `seen`, marked `!`: their batch goes on (the solve sees
-- every NodePool), so they must not be queued a second time. Answers its queued pods as {uid, pod}.
local function retire_pool(pool, uid)
  local stream, queued = P .. 'pending:' .. pool, {}
  redis.call('DEL', P .. 'window:' .. pool)
  redis.call('ZREM', P .. 'windows', pool)
  for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+')) do
    local fields, fault = read_entry(entry)
    if fields.uid then leave_seen(fields.uid, pool, entry[1]) end
    if fault then
      bury('entry/' .. pool .. '/' .. entry[1], fault, table.concat(entry[2], ' '))
    else
      queued[#queued + 1] = {fields.uid, fields.pod}
    end
  end
  redis.call('XTRIM', stream, 'MAXLEN', '0') -- not deleted: entry ids, which gates are made of, must not start anew
  for _, state in ipairs({'closed', 'planned'}) do
    for _, batch in ipairs(redis.call('ZRANGE', P .. 'batches:' .. state, 0, -1)) do
      local record = redis.call('HMGET', P .. 'batch:' .. batch, 'nodepool', 'nodepool_uid', 'items')
      if record[1] == pool and record[2] == uid then
        for _, item in ipairs(cjson.decode(record[3])) do
          local mine = pool .. '/' .. item[3]
          if redis.call('HGET', P .. 'seen', item[1]) == mine then
            redis.call('HSET', P .. 'seen', item[1], mine .. '!')
          end
        end
      end
    end
  end
  wake('', 'nodepool ' .. pool .. ' deleted')
  return queued
end

-- Queues pods ({uid, pod}) that a NodePool left, in the first NodePool of `preferred` that is in use, else the first by
-- name. With none in use they wait in the view, where a resync finds them. Answers the NodePool's name, or ''.
local function route_anew(queued, preferred, why)
  local pool = stand_in(preferred)
  if not pool then return '' end
  for _, item in ipairs(queued) do
    if may_be_pending(item[1]) and redis.call('HEXISTS', P .. 'seen', item[1]) == 0 then
      enqueue(pool, item[1], item[2], true)
      note_pod(item[2], item[1], 'queued anew', why, '', '', '')
    end
  end
  return pool
end

-- Batches ---------------------------------------------------------------------------------------------------------
-- Opens the gates of many items {uid, pod, entry id} of one NodePool; as `leave_seen`, 500 at a time.
local function open_gates(pool, items)
  for first = 1, #items, 500 do
    local last, uids, gone = math.min(first + 499, #items), {}, {}
    for i = first, last do uids[#uids + 1] = items[i][1] end
    local held = redis.call('HMGET', P .. 'seen', unpack(uids))
    for i = first, last do
      local mine, entry = pool .. '/' .. items[i][3], held[i - first + 1]
      if entry == mine or entry == mine .. '!' then gone[#gone + 1] = items[i][1] end
    end
    if #gone > 0 then redis.call('HDEL', P .. 'seen', unpack(gone)) end
  end
end

-- Ends a batch on whatever path: opens the gates of its items, keeps the record a day. Idempotent.
local function flush(batch, outcome)
  local key = P .. 'batch:' .. batch
  local record = redis.call('HMGET', key, 'state', 'nodepool', 'items')
  if not record[1] or record[1] == 'done' then return false end
  open_gates(record[2], cjson.decode(record[3]))
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

-- Leases of claims --------------------------------------------------------------------------------------------------
local function leased(claim, holder)
  local held = redis.call('HMGET', P .. 'claim:' .. claim, 'holder', 'lease_until_ms')
  return held[1] == holder and tonumber(held[2] or '0') > NOW
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
    pool = stand_in({})
  end
  if not pool or not enqueue(pool, uid, pod, true) then return false end
  note_pod(pod, uid, 'queued anew', why, '', '', '')
  return true
end
