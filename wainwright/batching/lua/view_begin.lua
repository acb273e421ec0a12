-- epoch, fence, holder, then every watched kind: a new epoch of the cluster view, empty and not complete.
-- → {'ok', epoch that adopted the claims, or ''}; {'fenced', fence}: a watcher with a higher fence has written
local meta = P .. 'view:meta'
local held = redis.call('HMGET', meta, 'fence', 'version')
if held[1] and tonumber(held[1]) > tonumber(A[2]) then return {'fenced', held[1]} end
for i = 4, #A do redis.call('UNLINK', P .. 'view:' .. A[i]) end
redis.call('UNLINK', P .. 'view:pending')
redis.call('DEL', meta)
redis.call('HSET', meta, 'epoch', A[1], 'fence', A[2], 'holder', A[3], 'complete', '0', 'began_ms', int(NOW),
  'version', int(tonumber(held[2] or '0') + 1))
return {'ok', redis.call('GET', P .. 'adopted') or ''}
