-- name, holder, NodeClaim UID, allowed_for_ms, deadline_ms, attempts (JSON) → verdict (design §4, rule 1)
--   go        live and leased to the caller: a request sent now may arrive until allowed_until_ms, which is noted
--   stop      leased to another, done, or failing: whoever has it carries on
--   other     the record belongs to another NodeClaim of this name: delete the caller's
--   withdraw  no record, though the claims of this data were adopted, or a failed one: the NodeClaim came too late
--   wait      no record and nothing adopted yet: the rebuild will find the NodeClaim
-- A request that was allowed before and whose answer nobody noted may still arrive: others_until_ms keeps its end.
local key = P .. 'claim:' .. A[1]
local record = redis.call('HMGET', key, 'state', 'uid', 'allowed_until_ms', 'others_until_ms', 'deadline_ms')
local state, uid = record[1], record[2]
if not state then
  if redis.call('EXISTS', P .. 'adopted') == 1 then return 'withdraw' end
  return 'wait'
end
local mine = leased(A[1], A[2])
if uid and uid ~= '' and uid ~= A[3] then
  if mine then
    redis.call('HDEL', key, 'holder', 'lease_until_ms')
    redis.call('ZADD', P .. 'claims:due', int(NOW), A[1])
  end
  return 'other'
end
if state == 'failed' then return 'withdraw' end
if not mine or state == 'done' or state == 'failing' then return 'stop' end
if state == 'planned' then state = 'created' end
local allowed = tonumber(record[3] or '0')
if allowed > NOW then
  redis.call('HSET', key, 'others_until_ms', int(math.max(allowed, tonumber(record[4] or '0'))))
end
if not record[5] then redis.call('HSET', key, 'deadline_ms', int(NOW + tonumber(A[5]))) end
redis.call('HSET', key, 'state', state, 'uid', A[3], 'allowed_until_ms', int(NOW + tonumber(A[4])), 'attempts', A[6])
return 'go'
