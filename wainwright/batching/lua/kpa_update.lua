-- key, spec: other parameters for a live autoscaler; its statistics stay. → 1, or 0 when there is none
if redis.call('EXISTS', P .. 'kpa:state:' .. A[1]) == 0 then return 0 end
redis.call('HSET', P .. 'kpa:specs', A[1], A[2])
return 1
