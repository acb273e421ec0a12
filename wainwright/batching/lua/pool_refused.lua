-- NodePool UID, for_ms, reason, message: the cloud refuses launches for it; no claim is planned for it meanwhile
local entries = redis.call('HGETALL', P .. 'refused')
for i = 1, #entries, 2 do
  if cjson.decode(entries[i + 1]).until_ms <= NOW then redis.call('HDEL', P .. 'refused', entries[i]) end
end
local entry = { reason = A[3], message = A[4], until_ms = NOW + tonumber(A[2]) }
redis.call('HSET', P .. 'refused', A[1], cjson.encode(entry))
return 1
