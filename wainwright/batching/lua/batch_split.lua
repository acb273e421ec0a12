-- holder, fence, batch: replaces a batch that kills its solver by its two halves, each suspect too → 1, or 0 (fenced)
if not holds('solve', A[1], A[2]) then return 0 end
local key = P .. 'batch:' .. A[3]
local items = cjson.decode(redis.call('HGET', key, 'items') or '[]')
local score = redis.call('ZSCORE', P .. 'batches:closed', A[3])
if not score or #items < 2 then return 0 end
local half = math.floor(#items / 2)
for part = 1, 2 do
  local id, from, to = A[3] .. '.' .. part, 1, half
  if part == 2 then from, to = half + 1, #items end
  local own = {}
  for i = from, to do own[#own + 1] = items[i] end
  redis.call('COPY', key, P .. 'batch:' .. id)
  redis.call('HSET', P .. 'batch:' .. id, 'items', cjson.encode(own), 'size', #own, 'solver', '', 'deaths', '3',
    'alone', '0')
  redis.call('ZADD', P .. 'batches:closed', score, id)
end
redis.call('ZREM', P .. 'batches:closed', A[3])
redis.call('DEL', key)
note('batch split', A[3], 'it killed its solver when solved alone', A[1])
return 1
