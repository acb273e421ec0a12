-- shard, folded ('': keep the inbox), then seven per autoscaler: key, decided_ms it was decided from ('' none), record,
-- `anew` or '', spec ('' as before), wish ('' as before), told (1: watchers are told of the wish):
-- writes what was decided, where nobody decided since. An older decision never replaces a newer one, unless `anew`
-- says that the clock went back. folded: the inbox is trimmed up to it (not including), all that was in it being in
-- the records.
-- → numbers (from 1) of those refused
local refused = {}
for i = 3, #A, 7 do
  local key, expected, record, anew, spec, wish, told = unpack(A, i, i + 6)
  local name = P .. 'kpa:state:' .. key
  local held = redis.call('GETRANGE', name, 0, 40)
  local stored = string.match(held, '^{"decided_ms":(%d+)') or ''
  local new = string.match(record, '^{"decided_ms":(%d+)')
  if stored ~= expected or (stored ~= '' and anew == '' and tonumber(new) < tonumber(stored)) then
    refused[#refused + 1] = (i + 4) / 7
  else
    redis.call('SET', name, record)
    if spec ~= '' then redis.call('HSET', P .. 'kpa:specs', key, spec) end
    if wish ~= '' then
      redis.call(wish == '0' and 'SADD' or 'SREM', P .. 'kpa:zero', key)
      if told == '1' then
        redis.call('XADD', P .. 'kpa:wishes', 'MAXLEN', '~', '20000', '*', 'v', '1', 'pa', key, 'desired', wish)
      end
    end
  end
end
if A[2] ~= '' and #refused == 0 then redis.call('XTRIM', P .. 'kpa:inbox:' .. A[1], 'MINID', A[2]) end
return refused
