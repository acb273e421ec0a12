-- Records a plan: its effects, its claims, its batches; one step, refused when the solve lock was lost.
-- holder, fence, epoch of the view it was computed from, payload (JSON):
--   plan: id; fields: {…} of plan:<id>; input: text; catalogs: {version: text}; keep_ms, keep_plans, keep_bytes
--   batches: [{id, pool, over: [[uid, entry], …]}]     over: dropped or unplaced, their gates open now
--   claims: [{name, fields: [k, v, …], pods: [[uid, meta], …], why}]     why: what its pods are told
--   rests: [[uid, meta, claim], …]   nodes: [[uid, meta, node], …]
--   unplaced: [[uid, pod, due_ms, json, reason], …]    placed: [uid, …] that leave the retry set
--   effects: {batch: [effect, …]}
-- → {1, pods queued anew because the claim they rested on failed} | {0, why}
if not holds('solve', A[1], A[2]) then return { 0, 'the solve lock was lost' } end
if redis.call('HGET', P .. 'view:meta', 'epoch') ~= A[3] then return { 0, 'the view began a new epoch' } end
local plan = cjson.decode(A[4])
local id = plan.plan
local key = P .. 'plan:' .. id
local back = 0

local function in_parts(arguments, command, key)
  for first = 1, #arguments, 1000 do
    redis.call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- Gathered and written many at a time: a command a pod and key would hold Redis up twice as long.
local planned, covered = {}, {}
local function adopt_pods(target, claim, node, pods, why)
  local metas = {}
  for _, pod in ipairs(pods) do
    local uid, meta = pod[1], pod[2]
    metas[#metas + 1], metas[#metas + 2] = uid, meta
    planned[#planned + 1], planned[#planned + 2] = uid, target .. ' ' .. id
    covered[#covered + 1] = uid
    note_pod(string.match(meta, '^[^|]*|([^|]*)|'), uid, 'planned', why, id, claim, node)
  end
  if claim ~= '' then in_parts(metas, 'HSET', P .. 'claim:' .. claim .. ':pods') end
end

for _, claim in ipairs(plan.claims) do
  redis.call('HSET', P .. 'claim:' .. claim.name, 'state', 'planned', 'plan', id, 'created_ms', int(NOW), 'next_ms',
    int(NOW), 'deaths', '0', unpack(claim.fields))
  redis.call('ZADD', P .. 'claims', int(NOW), claim.name)
  redis.call('ZADD', P .. 'claims:due', int(NOW + 1000), claim.name)
  adopt_pods('claim/' .. claim.name, claim.name, '', claim.pods, claim.why)
end
for _, pod in ipairs(plan.rests) do
  local state = redis.call('HGET', P .. 'claim:' .. pod[3], 'state')
  if state and state ~= 'failing' and state ~= 'failed' then
    adopt_pods('claim/' .. pod[3], pod[3], '', { pod }, 'a node on its way has room')
  else
    requeue_pod(pod[1], pod[2], '', 'the claim it would have rested on failed meanwhile')
    back = back + 1
  end
end
for _, pod in ipairs(plan.nodes) do adopt_pods('node/' .. pod[3], '', pod[3], { pod }, 'an existing node has room') end
in_parts(planned, 'HSET', P .. 'planned')
in_parts(covered, 'ZREM', P .. 'retry')
in_parts(covered, 'HDEL', P .. 'retries')
for _, pod in ipairs(plan.unplaced) do
  if redis.call('HEXISTS', P .. 'view:pending', pod[1]) == 1 then
    local last = tonumber(string.match(pod[4], '"last_ms":%s*(%d+)'))
    redis.call('ZADD', P .. 'retry', int(next_try(tonumber(pod[3]), last or NOW)), pod[1])
    redis.call('HSET', P .. 'retries', pod[1], pod[4])
    note_pod(pod[2], pod[1], 'not placed', pod[5], id, '', '')
  end
end
for _, batch in ipairs(plan.batches) do
  local record = P .. 'batch:' .. batch.id
  if redis.call('HGET', record, 'state') == 'closed' then
    for _, item in ipairs(batch.over) do leave_seen(item[1], batch.pool, item[2]) end
    redis.call('HSET', record, 'state', 'planned', 'plan', id, 'planned_ms', int(NOW))
    redis.call('ZREM', P .. 'batches:closed', batch.id)
    redis.call('ZADD', P .. 'batches:planned', int(NOW), batch.id)
    local effects = plan.effects[batch.id] or {}
    for _, effect in ipairs(effects) do redis.call('SADD', record .. ':effects', effect) end
    if #effects == 0 then flush(batch.id, 'nothing to carry out') elseif #batch.over > 0 then wake(batch.id, 'part') end
  end
end

for version, text in pairs(plan.catalogs) do
  redis.call('SET', P .. 'catalog:' .. version, text, 'PX', int(plan.keep_ms))
end
redis.call('HSET', key, 'created_ms', int(NOW), 'fence', A[2], unpack(plan.fields))
redis.call('PEXPIRE', key, int(plan.keep_ms))
redis.call('ZADD', P .. 'plans', int(NOW), id)
local old = redis.call('ZRANGE', P .. 'plans', 0, -1 - plan.keep_plans)
for _, gone in ipairs(old) do
  redis.call('ZREM', P .. 'plans', gone)
  redis.call('UNLINK', P .. 'plan:' .. gone, P .. 'plan:' .. gone .. ':input')
end
redis.call('SET', key .. ':input', A[5], 'PX', int(plan.keep_ms))
-- Inputs grow with the cluster: the oldest go where all together are larger than keep_bytes.
local bytes = 0
for _, kept in ipairs(redis.call('ZRANGE', P .. 'plans', 0, -1, 'REV')) do
  bytes = bytes + redis.call('STRLEN', P .. 'plan:' .. kept .. ':input')
  if bytes > plan.keep_bytes and kept ~= id then redis.call('UNLINK', P .. 'plan:' .. kept .. ':input') end
end
note('plan recorded', id, A[6], A[1])
return { 1, back }
