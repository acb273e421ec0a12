-- name, holder, keep_ms, { bound, settled, nominated, unbound: [uid] } (JSON), why unbound
-- → how many pods were queued anew; -1: not held, or not launched
-- Carried out: pods that could not be bound are queued anew, those left to kube-scheduler keep their room for keep_ms
-- (or until their node is ready, when that clock starts: nominations_begin), and so do those that rest on the claim.
local key = P .. 'claim:' .. A[1]
if redis.call('HGET', key, 'state') ~= 'launched' or not leased(A[1], A[2]) then return -1 end
local outcome = cjson.decode(A[4])
local node = redis.call('HGET', key, 'node') or ''
local plan = redis.call('HGET', key, 'plan') or ''
local complete = redis.call('HGET', P .. 'view:meta', 'complete') == '1'
local fate = {}
for what, uids in pairs(outcome) do
  for _, uid in ipairs(uids) do fate[uid] = what end
end
local batches, count = {}, 0
local pods = redis.call('HGETALL', key .. ':pods')
for i = 1, #pods, 2 do
  local uid, meta = pods[i], pods[i + 1]
  local role, pod, _, batch = string.match(meta, '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|')
  local what = fate[uid] or (role == 'rest' and 'nominated' or 'settled')
  if batch and batch ~= '' then batches[batch] = true end
  -- A complete view that does not show it pending shows it bound or gone: nothing is left to count.
  local shown = complete and redis.call('HEXISTS', P .. 'view:pending', uid) == 0
  if what == 'nominated' and not shown then
    redis.call('ZADD', P .. 'nominated', 'NX', int(NOW + tonumber(A[3])), uid)
    note_pod(pod, uid, 'nominated', 'left to kube-scheduler', plan, A[1], node)
  else
    redis.call('HDEL', key .. ':pods', uid)
    if what == 'unbound' then
      if requeue_pod(uid, meta, 'claim/' .. A[1], A[5]) then count = count + 1 end
    else
      if what == 'bound' then note_pod(pod, uid, 'bound', '', plan, A[1], node) end
      local held = redis.call('HGET', P .. 'planned', uid)
      if shown and held and string.match(held, '^%S+') == 'claim/' .. A[1] then
        redis.call('HDEL', P .. 'planned', uid)
      end
    end
  end
end
redis.call('HSET', key, 'state', 'done', 'done_ms', int(NOW), 'bound_ms', int(NOW), 'deaths', '0')
redis.call('HDEL', key, 'holder', 'lease_until_ms', 'next_ms')
redis.call('ZREM', P .. 'claims:due', A[1])
for batch in pairs(batches) do effect_over(batch, A[1]) end
note('claim done', A[1], A[5], A[2])
return count
