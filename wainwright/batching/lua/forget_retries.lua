-- pod UIDs: they leave the retry set and what is set aside (the pod changed, or is gone) → number that was in either
local count = 0
for _, uid in ipairs(A) do
  local found = redis.call('ZREM', P .. 'retry', uid) + redis.call('HDEL', P .. 'dead', 'pod/' .. uid)
  redis.call('HDEL', P .. 'retries', uid)
  if found > 0 then count = count + 1 end
end
return count
