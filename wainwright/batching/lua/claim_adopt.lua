-- epoch, fence, request_ms, claims (JSON): [{ name, state, settled, disputed, fields: [k, v, …], pods: [[uid, meta], …] }, …]
-- → how many got a record; -1: another watcher or epoch (or, with an empty epoch, nothing was adopted yet)
-- Gives NodeClaims without a record one (design §4, rule 4). The first call in the life of this data adopts: `launched`
-- or `created`, as listed, and `failing` where claims share a pod or are being deleted. After it, and for a claim that
-- turns up later (empty epoch), a NodeClaim without a record becomes failing. One whose node has joined (settled) never
-- does: its launch was over, only its record was lost. Requests allowed before may still arrive for request_ms.
local late = A[1] == ''
local adopted = redis.call('EXISTS', P .. 'adopted') == 1
if late then
  if not adopted then return -1 end
else
  local meta = redis.call('HMGET', P .. 'view:meta', 'epoch', 'fence')
  if meta[1] ~= A[1] or meta[2] ~= A[2] then return -1 end
end
local count = 0
for _, claim in ipairs(cjson.decode(A[4])) do
  local key = P .. 'claim:' .. claim.name
  local known = redis.call('HGET', key, 'state')
  if not known or (late and known == 'failed') then
    redis.call('DEL', key, key .. ':pods')
    local state = claim.state
    if state ~= 'failing' and not claim.settled and (claim.disputed or adopted) then state = 'failing' end
    redis.call('HSET', key, 'state', state, 'created_ms', int(NOW), 'next_ms', int(NOW), 'deaths', '0',
      unpack(claim.fields))
    if not claim.settled then redis.call('HSET', key, 'allowed_until_ms', int(NOW + tonumber(A[3]))) end
    redis.call('ZADD', P .. 'claims', int(NOW), claim.name)
    redis.call('ZADD', P .. 'claims:due', int(NOW), claim.name)
    for _, pod in ipairs(claim.pods) do
      redis.call('HSET', key .. ':pods', pod[1], pod[2])
      local target = 'claim/' .. claim.name .. ' ' .. (redis.call('HGET', key, 'plan') or '')
      redis.call('HSETNX', P .. 'planned', pod[1], target)
    end
    count = count + 1
    note('claim adopted', claim.name, state, late and 'upkeep' or 'watcher')
  end
end
if not late then redis.call('SETNX', P .. 'adopted', A[1]) end
return count
