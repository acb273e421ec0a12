-- task, slot, took_ms, by, outcome: the last tick that ran; an older slot never replaces a newer one
local key = P .. 'tick:' .. A[1]
local last = tonumber(redis.call('HGET', key, 'slot'))
if last and last > tonumber(A[2]) then return 0 end
redis.call('HSET', key, 'slot', A[2], 'at_ms', int(NOW), 'took_ms', A[3], 'by', A[4], 'outcome', A[5])
return 1
