-- name, holder, lease_ms → fence, or 0 when somebody holds it
local key = P .. 'lock:' .. A[1]
if redis.call('EXISTS', key) == 1 then return 0 end
local fence = math.max(tonumber(redis.call('GET', P .. 'fence:' .. A[1]) or '0') + 1, NOW)
redis.call('SET', P .. 'fence:' .. A[1], int(fence))
redis.call('HSET', key, 'holder', A[2], 'fence', int(fence), 'since_ms', int(NOW))
redis.call('PEXPIRE', key, A[3])
return int(fence)
