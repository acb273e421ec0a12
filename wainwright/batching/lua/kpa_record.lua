-- keep_ms, expected, position ('' both: not from pushes), then shard, samples (JSON), count, and count keys of
-- autoscalers with load; again for each further shard:
-- puts samples into the inboxes of their shards, from which the next decision takes them. With a position, what was
-- pushed up to there is taken over: nothing happens when somebody else did so since `expected`.
-- → those of the keys whose wish is 0: they are to be decided at once
local keep = tonumber(A[1])
if A[3] ~= '' then
  local read = P .. 'kpa:push:read'
  if (redis.call('GET', read) or '') ~= A[2] then return {} end
  redis.call('SET', read, A[3])
  redis.call('XTRIM', P .. 'kpa:push', 'MINID', '~', int(NOW - 10000))
end
local reply = {}
local i = 4
while A[i] do
  local inbox = P .. 'kpa:inbox:' .. A[i]
  redis.call('XADD', inbox, 'MINID', '~', int(NOW - keep), '*', 'v', '1', 'samples', A[i + 1])
  local count = tonumber(A[i + 2])
  for k = i + 3, i + 2 + count do
    if redis.call('SISMEMBER', P .. 'kpa:zero', A[k]) == 1 then reply[#reply + 1] = A[k] end
  end
  i = i + 3 + count
end
return reply
