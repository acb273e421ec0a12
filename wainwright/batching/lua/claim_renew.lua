-- lease_ms, then name, holder for each claim held → names of those not held any more
local lost = {}
local until_ms = int(NOW + tonumber(A[1]))
for i = 2, #A, 2 do
  local key = P .. 'claim:' .. A[i]
  local record = redis.call('HMGET', key, 'holder', 'lease_until_ms')
  if record[1] == A[i + 1] and tonumber(record[2] or '0') > NOW then
    redis.call('HSET', key, 'lease_until_ms', until_ms)
    redis.call('ZADD', P .. 'claims:due', until_ms, A[i])
  else
    lost[#lost + 1] = A[i]
  end
end
return lost
