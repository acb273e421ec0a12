-- epoch, fence, then seven arguments per change: op, kind, key, uid, resourceVersion, state, value. In order, all or
-- none. Without changes it only asks whether this watcher may still write.
--   put       an object as JSON, metadata first; an older resourceVersion never replaces a newer one. state, for pods:
--             p provisionable, u unbound otherwise, b bound; after it (for all kinds) c when what matters for
--             scheduling may have changed, which takes it out of the retry set and out of `dead`
--   del       the object is gone
--   bad       it cannot be decoded: set aside, what is known of it stays. value: JSON {reason, what}
--   progress  the watch of this kind showed life at this resourceVersion
--   listed    the kind was listed at this resourceVersion. value: JSON {keys, unbound}: what exists; for pods, UIDs of
--             those not bound. Everything else is gone: this reconciles deletes that nobody saw
-- → {'ok', version, number of each change (from 1) whose pod waits for capacity and is in no queue, plan, retry set or
--   `dead`}; {'epoch'}: another epoch, or Redis came back empty; {'fenced', fence}: a watcher with a higher fence has written
local meta = P .. 'view:meta'
local held = redis.call('HMGET', meta, 'epoch', 'fence', 'complete')
if held[2] and tonumber(held[2]) > tonumber(A[2]) then return {'fenced', held[2]} end
if held[1] ~= A[1] or held[2] ~= A[2] then return {'epoch'} end

local SINGULAR = {storageclasses = 'storageclass'}
local function dead_field(kind, key, uid)
  if kind == 'pods' then return 'pod/' .. uid end
  return (SINGULAR[kind] or string.sub(kind, 1, -2)) .. '/' .. key
end

local woken = false
-- Neither queued, planned nor retried any more; `seen` stays until its batch is over.
local function settle(uid)
  redis.call('HDEL', P .. 'view:pending', uid)
  redis.call('HDEL', P .. 'planned', uid)
  redis.call('ZREM', P .. 'nominated', uid)
  redis.call('ZREM', P .. 'retry', uid)
  redis.call('HDEL', P .. 'retries', uid)
end
local function pod_gone(uid)
  settle(uid)
  redis.call('HDEL', P .. 'dead', 'pod/' .. uid)
  if redis.call('HDEL', P .. 'seen', uid) == 1 then woken = true end
end

-- resourceVersion (a number) and UID of a stored object: both stand in its metadata, which comes first.
local function identity(text)
  return tonumber(string.match(text, '"resourceVersion":"(%d+)"')), string.match(text, '"uid":"([^"]*)"')
end

local changed = false
local function remove(kind, key, uid)
  redis.call('HDEL', P .. 'view:' .. kind, key)
  changed = true
  if kind == 'pods' then pod_gone(uid) else redis.call('HDEL', P .. 'dead', dead_field(kind, key, uid)) end
end

local function addable(uid)
  return redis.call('HEXISTS', P .. 'seen', uid) == 0 and redis.call('HEXISTS', P .. 'planned', uid) == 0
    and not redis.call('ZSCORE', P .. 'retry', uid) and redis.call('HEXISTS', P .. 'dead', 'pod/' .. uid) == 0
end

local reply = {'ok', ''}
local function put(number, kind, key, uid, version, state, value)
  local pod = kind == 'pods'
  local stored = redis.call('HGET', P .. 'view:' .. kind, key)
  local same = false
  if stored then
    local stored_version, stored_uid = identity(stored)
    if version and stored_version and version < stored_version then return end
    same = version and stored_version == version
    -- Made anew under its name, and nobody saw the old one go.
    if pod and stored_uid ~= uid then pod_gone(stored_uid) end
  end
  if not same then
    redis.call('HSET', P .. 'view:' .. kind, key, value)
    changed = true
  end
  if string.sub(state, -1) == 'c' then
    redis.call('HDEL', P .. 'dead', dead_field(kind, key, uid))
    if pod then
      redis.call('ZREM', P .. 'retry', uid)
      redis.call('HDEL', P .. 'retries', uid)
    end
  end
  if not pod then return end
  local kind_of_pod = string.sub(state, 1, 1)
  if kind_of_pod == 'p' then
    redis.call('HSET', P .. 'view:pending', uid, key)
    if held[3] == '1' and addable(uid) then reply[#reply + 1] = number end
  elseif kind_of_pod == 'u' then
    redis.call('HDEL', P .. 'view:pending', uid)
    redis.call('ZREM', P .. 'retry', uid)
    redis.call('HDEL', P .. 'retries', uid)
  else
    settle(uid)
  end
end

-- Pods whose end nobody saw, because it came while there was no watcher: none of them may stay queued or planned.
local function forget_all_but(unbound)
  local function check(uid) if not unbound[uid] then pod_gone(uid) end end
  for _, key in ipairs({'planned', 'seen', 'retries', 'view:pending'}) do
    for _, uid in ipairs(redis.call('HKEYS', P .. key)) do check(uid) end
  end
  for _, key in ipairs({'retry', 'nominated'}) do
    for _, uid in ipairs(redis.call('ZRANGE', P .. key, 0, -1)) do check(uid) end
  end
  for _, field in ipairs(redis.call('HKEYS', P .. 'dead')) do
    local uid = string.match(field, '^pod/(.*)$')
    if uid then check(uid) end
  end
end

local function listed(kind, version, value)
  local exists, unbound = {}, {}
  local list = cjson.decode(value)
  for _, key in ipairs(list.keys) do exists[key] = true end
  for _, uid in ipairs(list.unbound) do unbound[uid] = true end
  for _, key in ipairs(redis.call('HKEYS', P .. 'view:' .. kind)) do
    if not exists[key] then
      local stored_version, uid = identity(redis.call('HGET', P .. 'view:' .. kind, key))
      if not version or not stored_version or stored_version <= version then remove(kind, key, uid) end
    end
  end
  if kind == 'pods' then forget_all_but(unbound) end
  redis.call('HSET', meta, 'listed:' .. kind, '1')
end

for i = 3, #A, 7 do
  local op, kind, key, uid, version, state, value = unpack(A, i, i + 6)
  local number = tonumber(version)
  if op == 'put' then
    put((i + 4) / 7, kind, key, uid, number, state, value)
  elseif op == 'del' then
    local stored = redis.call('HGET', P .. 'view:' .. kind, key)
    local stored_version, stored_uid
    if stored then stored_version, stored_uid = identity(stored) end
    if stored and (stored_uid == uid or not number or not stored_version or stored_version <= number) then
      remove(kind, key, stored_uid)
    end
    if kind == 'pods' and stored_uid ~= uid then pod_gone(uid) end
  elseif op == 'bad' then
    local what = cjson.decode(value)
    redis.call('HSET', P .. 'dead', dead_field(kind, key, uid),
      cjson.encode({reason = what.reason, what = what.what, at_ms = NOW}))
    if kind == 'pods' then redis.call('HDEL', P .. 'view:pending', uid) end
  elseif op == 'listed' then
    listed(kind, number, value)
  end
  redis.call('HSET', meta, 'progress:' .. kind, int(NOW), 'rv:' .. kind, version)
end
if changed then reply[2] = int(redis.call('HINCRBY', meta, 'version', 1)) end
if woken then wake('', 'pod gone') end
return reply
