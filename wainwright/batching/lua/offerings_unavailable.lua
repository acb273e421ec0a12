-- for_ms, then offerings (`capacity type/instance type/zone`) → how many are remembered
redis.call('ZREMRANGEBYSCORE', P .. 'unavailable', '-inf', int(NOW))
for i = 2, #A do redis.call('ZADD', P .. 'unavailable', int(NOW + tonumber(A[1])), A[i]) end
return redis.call('ZCARD', P .. 'unavailable')
