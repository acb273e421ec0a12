-- name, holder, why → how many pods were queued anew; -1: not held, or not failing
-- The NodeClaim of a failing claim is gone: its pods are queued anew, its effects are over. A pod that another claim has
-- too (they share it since an adoption) goes to that one instead. The failed record stays readable for an hour.
local key = P .. 'claim:' .. A[1]
local record = redis.call('HMGET', key, 'state', 'rivals')
if record[1] ~= 'failing' or not leased(A[1], A[2]) then return -1 end
local rivals = cjson.decode(record[2] or '[]')
local function heir(uid)
  for _, name in ipairs(rivals) do
    local other = P .. 'claim:' .. name
    local state = redis.call('HGET', other, 'state')
    if state and state ~= 'failed' and redis.call('HEXISTS', other .. ':pods', uid) == 1 then return name end
  end
  return nil
end
redis.call('HSET', key, 'state', 'failed', 'done_ms', int(NOW))
redis.call('HDEL', key, 'holder', 'lease_until_ms')
local batches, count = {}, 0
local pods = redis.call('HGETALL', key .. ':pods')
for i = 1, #pods, 2 do
  local uid, meta = pods[i], pods[i + 1]
  local batch = string.match(meta, '^[^|]*|[^|]*|[^|]*|([^|]*)|')
  if batch and batch ~= '' then batches[batch] = true end
  local held = redis.call('HGET', P .. 'planned', uid)
  local other = held and string.match(held, '^%S+') == 'claim/' .. A[1] and heir(uid)
  if other then
    redis.call('HSET', P .. 'planned', uid, 'claim/' .. other .. ' ' .. (redis.call('HGET', P .. 'claim:' .. other, 'plan') or ''))
  elseif requeue_pod(uid, meta, 'claim/' .. A[1], A[3]) then
    count = count + 1
  end
end
for batch in pairs(batches) do effect_over(batch, A[1]) end
redis.call('DEL', key .. ':pods')
redis.call('ZREM', P .. 'claims:due', A[1])
redis.call('ZREM', P .. 'claims', A[1])
redis.call('PEXPIRE', key, 3600000)
note('claim failed', A[1], A[3], A[2])
return count
