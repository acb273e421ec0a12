-- most → UIDs of the pods whose room is not kept any more; what is still pending of them comes back with the next resync
local gone = redis.call('ZRANGEBYSCORE', P .. 'nominated', '-inf', int(NOW), 'LIMIT', 0, A[1])
for _, uid in ipairs(gone) do
  redis.call('ZREM', P .. 'nominated', uid)
  local target = string.match(redis.call('HGET', P .. 'planned', uid) or '', '^%S+')
  if target then
    local claim = string.match(target, '^claim/(.*)$')
    local state = claim and redis.call('HGET', P .. 'claim:' .. claim, 'state')
    if not claim or not state or state == 'done' or state == 'failed' then
      redis.call('HDEL', P .. 'planned', uid)
      if claim then redis.call('HDEL', P .. 'claim:' .. claim .. ':pods', uid) end
    end
  end
end
return gone
