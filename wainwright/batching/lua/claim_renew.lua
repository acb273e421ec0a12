-- lease_ms, then name, holder for each claim held → names of those not held any more
-- A lease that lapsed is renewed as long as nobody took the claim: nothing has happened to it then.
local lost = {}
local until_ms = int(NOW + tonumber(A[1]))
for i = 2, #A, 2 do
  local key = P .. 'claim:' .. A[i]
  if redis.call('HGET', key, 'holder') == A[i + 1] then
    redis.call('HSET', key, 'lease_until_ms', until_ms)
    redis.call('ZADD', P .. 'claims:due', until_ms, A[i])
  else
    lost[#lost + 1] = A[i]
  end
end
return lost
