-- epoch, fence, then every watched kind: marks the view complete once all were listed and the claims are adopted.
-- → {'ok'}, {'missing', what}, or as view_apply {'epoch'}, {'fenced', fence}
local meta = P .. 'view:meta'
local held = redis.call('HMGET', meta, 'epoch', 'fence')
if held[2] and tonumber(held[2]) > tonumber(A[2]) then return {'fenced', held[2]} end
if held[1] ~= A[1] or held[2] ~= A[2] then return {'epoch'} end
for i = 3, #A do
  if redis.call('HGET', meta, 'listed:' .. A[i]) ~= '1' then return {'missing', A[i]} end
end
if redis.call('EXISTS', P .. 'adopted') == 0 then return {'missing', 'adopted'} end
redis.call('HSET', meta, 'complete', '1', 'completed_ms', int(NOW))
redis.call('HINCRBY', meta, 'version', 1)
return {'ok'}
