-- name, holder, wait_ms → 1, or 0 when it was not held: the next look at it is due wait_ms from now
if not leased(A[1], A[2]) then return 0 end
local key = P .. 'claim:' .. A[1]
local next_ms = int(NOW + tonumber(A[3]))
redis.call('HDEL', key, 'holder', 'lease_until_ms', 'hinted')
redis.call('HSET', key, 'deaths', '0', 'next_ms', next_ms)
redis.call('ZADD', P .. 'claims:due', next_ms, A[1])
return 1
