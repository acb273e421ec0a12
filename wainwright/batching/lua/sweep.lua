-- most → { claims to hint, planned batches whose nominations are open, 1 when closed batches wait and nobody solves }
-- A claim is due when nobody has held it since its time came; after a hint it gets two seconds, then four, … to be
-- taken, so that a long queue of launches does not fill with doubled hints.
local claims, batches, closed = {}, {}, 0
for _, name in ipairs(redis.call('ZRANGEBYSCORE', P .. 'claims:due', '-inf', int(NOW), 'LIMIT', 0, A[1])) do
  local key = P .. 'claim:' .. name
  local record = redis.call('HMGET', key, 'state', 'lease_until_ms')
  if not record[1] or record[1] == 'done' or record[1] == 'failed' then
    redis.call('ZREM', P .. 'claims:due', name)
  elseif tonumber(record[2] or '0') > NOW then
    redis.call('ZADD', P .. 'claims:due', record[2], name)
  else
    claims[#claims + 1] = name
    local hinted = redis.call('HINCRBY', key, 'hinted', 1)
    redis.call('ZADD', P .. 'claims:due', int(NOW + math.min(30000, 1000 * 2 ^ math.min(hinted, 5))), name)
  end
end
for _, batch in ipairs(redis.call('ZRANGEBYSCORE', P .. 'batches:planned', '-inf', int(NOW - 1000))) do
  local key = P .. 'batch:' .. batch
  local record = redis.call('HMGET', key, 'planned_ms', 'hinted_ms')
  for _, effect in ipairs(redis.call('SMEMBERS', key .. ':effects')) do
    if effect == 'nominate' then
      if NOW - tonumber(record[2] or '0') >= 2000 then
        redis.call('HSET', key, 'hinted_ms', int(NOW))
        batches[#batches + 1] = batch
      end
    else
      -- No plan stays open for ever: a claim that is over, or was never recorded, has no effect left to wait for.
      local state = redis.call('HGET', P .. 'claim:' .. effect, 'state')
      if not state or state == 'done' or state == 'failed' then effect_over(batch, effect) end
    end
  end
  if record[1] and redis.call('SCARD', key .. ':effects') == 0 then flush(batch, 'carried out') end
end
if redis.call('EXISTS', P .. 'lock:solve') == 0 then
  for _, batch in ipairs(redis.call('ZRANGE', P .. 'batches:closed', 0, 0)) do
    local closed_ms = tonumber(redis.call('HGET', P .. 'batch:' .. batch, 'closed_ms') or '0')
    if NOW - closed_ms >= 1000 then closed = 1 end
  end
end
return { claims, batches, closed }
