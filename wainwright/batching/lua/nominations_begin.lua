-- node, claim, keep_ms → how many: the node is Ready and untainted, so the time that room is kept for its nominated pods
-- begins to run. The claim's record tells since when (opened_ms).
if redis.call('EXISTS', P .. 'claim:' .. A[2]) == 1 then redis.call('HSET', P .. 'claim:' .. A[2], 'opened_ms', int(NOW)) end
local count, until_ms = 0, NOW + tonumber(A[3])
for _, uid in ipairs(redis.call('ZRANGEBYSCORE', P .. 'nominated', '(' .. int(until_ms), '+inf')) do
  local target = string.match(redis.call('HGET', P .. 'planned', uid) or '', '^%S+')
  if target == 'node/' .. A[1] or target == 'claim/' .. A[2] then
    redis.call('ZADD', P .. 'nominated', int(until_ms), uid)
    count = count + 1
  end
end
return count
