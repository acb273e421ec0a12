-- → for each claim with a record: { name, its fields (flat) }. A claim whose Node is in the view and was opened (so the
-- Node tells its own size) gives only what is needed beside that: state, node, price.
local answer = {}
for _, name in ipairs(redis.call('ZRANGE', P .. 'claims', 0, -1)) do
  local key = P .. 'claim:' .. name
  local short = redis.call('HMGET', key, 'state', 'node', 'price', 'opened_ms')
  if short[1] == 'done' and short[2] and short[4] and redis.call('HEXISTS', P .. 'view:nodes', short[2]) == 1 then
    answer[#answer + 1] = { name, { 'state', 'done', 'node', short[2], 'price', short[3] or '0' } }
  elseif short[1] then
    answer[#answer + 1] = { name, redis.call('HGETALL', key) }
  end
end
return answer
