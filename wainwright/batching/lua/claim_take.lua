-- name, holder, lease_ms → { 'taken', fields (flat), pods (flat) }, or { why } it was not: unknown, over, held, later
-- Only a free or lapsed lease is taken. One that lapsed without being released counts a death; from the third in a row
-- on, the claim waits before the next try, twice as long each time, so that what kills its holder cannot kill them all.
local key = P .. 'claim:' .. A[1]
local record = redis.call('HMGET', key, 'state', 'holder', 'lease_until_ms', 'next_ms')
local state = record[1]
if not state then
  redis.call('ZREM', P .. 'claims:due', A[1])
  return { 'unknown' }
end
if state == 'done' or state == 'failed' then
  redis.call('ZREM', P .. 'claims:due', A[1])
  return { 'over' }
end
if tonumber(record[3] or '0') > NOW then return { 'held' } end
if record[2] and record[2] ~= '' then
  local deaths = redis.call('HINCRBY', key, 'deaths', 1)
  redis.call('HDEL', key, 'holder', 'lease_until_ms')
  if deaths >= 3 then
    local next_ms = NOW + math.min(60000, 1000 * 2 ^ math.min(deaths - 2, 6))
    redis.call('HSET', key, 'next_ms', int(next_ms))
    redis.call('ZADD', P .. 'claims:due', int(next_ms), A[1])
    return { 'later' }
  end
end
if tonumber(record[4] or '0') > NOW then return { 'later' } end
local until_ms = int(NOW + tonumber(A[3]))
redis.call('HSET', key, 'holder', A[2], 'lease_until_ms', until_ms)
redis.call('HDEL', key, 'hinted')
redis.call('ZADD', P .. 'claims:due', until_ms, A[1])
return { 'taken', redis.call('HGETALL', key), redis.call('HGETALL', key .. ':pods') }
