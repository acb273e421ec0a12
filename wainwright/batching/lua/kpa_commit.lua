-- shard, folded ('': keep the inbox), count, then three per autoscaler: key, decided_ms it was decided from ('' none),
-- record; then five for each of which more is to be said: its number (from 1), `anew` or '', spec ('' as before),
-- wish ('' as before), told (1: watchers are told of the wish):
-- writes what was decided, where nobody decided since. An older decision never replaces a newer one, unless `anew`
-- says that the clock went back. folded: the inbox is trimmed up to it (not including), all that was in it being in
-- the records.
-- → numbers of those refused
local count = tonumber(A[3])
local refused, anew = {}, {}
for i = 4 + 3 * count, #A, 5 do anew[tonumber(A[i])] = A[i + 1] ~= '' end
local is_refused = {}
for number = 1, count do
  local at = 1 + 3 * number
  local key, expected, record = A[at], A[at + 1], A[at + 2]
  local name = P .. 'kpa:state:' .. key
  local stored = string.match(redis.call('GETRANGE', name, 0, 40), '^{"decided_ms":(%d+)') or ''
  local new = tonumber(string.match(record, '^{"decided_ms":(%d+)'))
  if stored ~= expected or (stored ~= '' and not anew[number] and new < tonumber(stored)) then
    refused[#refused + 1] = number
    is_refused[number] = true
  else
    redis.call('SET', name, record)
  end
end
for i = 4 + 3 * count, #A, 5 do
  local number, spec, wish, told = tonumber(A[i]), A[i + 2], A[i + 3], A[i + 4]
  local key = A[1 + 3 * number]
  if not is_refused[number] then
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
