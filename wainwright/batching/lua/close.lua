-- lock, holder, fence, nodepool, random token for the batch's id
-- → {'fenced'}; {'none'}: no window; {'early', due_ms, server ms}; {'gone'}: the NodePool was deleted or replaced, its pods are
--   queued elsewhere; {'closed', batch id ('' when nothing usable was queued), number of pods}
if not holds(A[1], A[2], A[3]) then return {'fenced'} end
local pool = A[4]
local window = redis.call('HMGET', P .. 'window:' .. pool, 'due_ms', 'nodepool_uid')
if not window[1] then
  redis.call('ZREM', P .. 'windows', pool)
  return {'none'}
end
if redis.call('HGET', P .. 'nodepools', pool) ~= window[2] then
  route_anew(retire_pool(pool, window[2]), {}, 'NodePool ' .. pool .. ' deleted')
  return {'gone'}
end
if NOW < tonumber(window[1]) then return {'early', window[1], NOW} end
local batch, size = close_window(pool, 'fresh', A[5])
return {'closed', batch, size}
