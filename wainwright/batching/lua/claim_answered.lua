-- name, holder → how long (ms) requests of this claim whose answers nobody noted may still arrive; -1: not held
-- The caller's own request was answered: it cannot arrive any more.
if not leased(A[1], A[2]) then return -1 end
local key = P .. 'claim:' .. A[1]
redis.call('HDEL', key, 'allowed_until_ms')
return math.max(0, tonumber(redis.call('HGET', key, 'others_until_ms') or '0') - NOW)
