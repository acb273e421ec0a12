-- name, NodeClaim UID, reason, message → 1: a claim that was done is failing now (its NodeClaim is being deleted, or gone)
local key = P .. 'claim:' .. A[1]
local record = redis.call('HMGET', key, 'state', 'uid', 'lease_until_ms')
if record[1] ~= 'done' or record[2] ~= A[2] or tonumber(record[3] or '0') > NOW then return 0 end
redis.call('HSET', key, 'state', 'failing', 'reason', A[3], 'message', A[4], 'next_ms', int(NOW))
redis.call('ZADD', P .. 'claims:due', int(NOW), A[1])
note('claim failing', A[1], A[3] .. ': ' .. A[4], 'upkeep')
return 1
