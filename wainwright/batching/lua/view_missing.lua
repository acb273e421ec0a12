-- epoch, fence: the pods that wait for capacity and are in no queue, live plan, retry set, and not set aside.
-- → {'ok', uid, namespace/name, ...}, {'incomplete'}, or as view_apply {'epoch'}, {'fenced', fence}
local held = redis.call('HMGET', P .. 'view:meta', 'epoch', 'fence', 'complete')
if held[2] and tonumber(held[2]) > tonumber(A[2]) then return {'fenced', held[2]} end
if held[1] ~= A[1] or held[2] ~= A[2] then return {'epoch'} end
if held[3] ~= '1' then return {'incomplete'} end
local pending = redis.call('HGETALL', P .. 'view:pending')
local reply = {'ok'}
if #pending == 0 then return reply end
local known = {}
for _, key in ipairs({'seen', 'planned'}) do
  for _, uid in ipairs(redis.call('HKEYS', P .. key)) do known[uid] = true end
end
for _, uid in ipairs(redis.call('ZRANGE', P .. 'retry', 0, -1)) do known[uid] = true end
for _, field in ipairs(redis.call('HKEYS', P .. 'dead')) do
  if string.sub(field, 1, 4) == 'pod/' then known[string.sub(field, 5)] = true end
end
for i = 1, #pending, 2 do
  if not known[pending[i]] then
    reply[#reply + 1] = pending[i]
    reply[#reply + 1] = pending[i + 1]
  end
end
return reply
