-- task, period_ms → the number of the current time slot, or -1 when somebody has taken it already
local period = tonumber(A[2])
local slot = math.floor(NOW / period)
local key = P .. 'slot:' .. A[1] .. ':' .. int(slot)
if not redis.call('SET', key, int(NOW), 'NX', 'PX', int(math.max(10000, 3 * period))) then return -1 end
return slot
