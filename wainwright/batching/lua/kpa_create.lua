-- key, record, spec: begins an autoscaler, unless it is there already. → its record and spec as they are then
local name = P .. 'kpa:state:' .. A[1]
if redis.call('EXISTS', name) == 0 then
  redis.call('SET', name, A[2])
  redis.call('HSET', P .. 'kpa:specs', A[1], A[3])
end
return {redis.call('GET', name), redis.call('HGET', P .. 'kpa:specs', A[1]) or A[3]}
