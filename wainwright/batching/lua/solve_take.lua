-- holder, fence, most pods → { batch id, kind, nodepool, items (JSON), … } per batch taken, or nothing when the lock is
-- not held. Batches keep their state; `solver` says who works on them, and a batch found with another solver has seen
-- one die: `deaths`. From the third on it is taken alone; when even that kills, it comes back marked `split` (or, with
-- one pod left, `park`) and the caller does so before taking again.
if not holds('solve', A[1], A[2]) then return false end
local most, taken, pods, suspects = tonumber(A[3]), {}, 0, {}
local function take(id, advice)
  local key = P .. 'batch:' .. id
  local record = redis.call('HMGET', key, 'kind', 'nodepool', 'items', 'size')
  redis.call('HSET', key, 'solver', A[1] .. '/' .. A[2])
  taken[#taken + 1] = { id, record[1], record[2], record[3], advice }
  pods = pods + tonumber(record[4])
end
for _, id in ipairs(redis.call('ZRANGE', P .. 'batches:closed', 0, -1)) do
  local key = P .. 'batch:' .. id
  local record = redis.call('HMGET', key, 'solver', 'deaths', 'size', 'alone')
  local deaths = tonumber(record[2] or '0')
  if not record[3] then
    redis.call('ZREM', P .. 'batches:closed', id)
  else
    if record[1] and record[1] ~= '' and record[1] ~= A[1] .. '/' .. A[2] then
      deaths = redis.call('HINCRBY', key, 'deaths', 1)
      redis.call('HSET', key, 'solver', '')
    end
    if deaths >= 3 then
      suspects[#suspects + 1] = { id, tonumber(record[3]), record[4] == '1' }
    elseif pods == 0 or pods + tonumber(record[3]) <= most then
      take(id, '')
    end
  end
end
if #taken == 0 and #suspects > 0 then
  local id, size, alone = suspects[1][1], suspects[1][2], suspects[1][3]
  redis.call('HSET', P .. 'batch:' .. id, 'alone', '1')
  if not alone then take(id, 'alone') elseif size > 1 then take(id, 'split') else take(id, 'park') end
end
return taken
