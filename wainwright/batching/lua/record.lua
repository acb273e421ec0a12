-- Records a plan: its effects, its claims, its batches; one step, refused when the solve lock was lost.
-- holder, fence, epoch of the view it was computed from, payload (JSON):
--   plan: id; fields: {…} of plan:<id>; input: text; catalogs: {version: text}; keep_ms, keep_plans
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

local function adopt_pod(target, claim, node, pod, why)
  local uid, meta = pod[1], pod[2]
  local name = string.match(meta, '^[^|]*|([^|]*)|')
  if claim ~= '' then redis.call('HSET', P .. 'claim:' .. claim .. ':pods', uid, meta) end
  redis.call('HSET', P .. 'planned', uid, target .. ' ' .. id)
  redis.call('ZREM', P .. 'retry', uid)
  redis.call('HDEL', P .. 'retries', uid)
  note_pod(name, uid, 'planned', why, id, claim, node)
end

for _, claim in ipairs(plan.claims) do
  redis.call('HSET', P .. 'claim:' .. claim.name, 'state', 'planned', 'plan', id, 'created_ms', int(NOW), 'next_ms',
    int(NOW), 'deaths', '0', unpack(claim.fields))
  redis.call('ZADD', P .. 'claims', int(NOW), claim.name)
  redis.call('ZADD', P .. 'claims:due', int(NOW + 1000), claim.name)
  for _, pod in ipairs(claim.pods) do adopt_pod('claim/' .. claim.name, claim.name, '', pod, claim.why) end
end
for _, pod in ipairs(plan.rests) do
  local state = redis.call('HGET', P .. 'claim:' .. pod[3], 'state')
  if state and state ~= 'failing' and state ~= 'failed' then
    adopt_pod('claim/' .. pod[3], pod[3], '', pod, 'a node on its way has room')
  else
    requeue_pod(pod[1], pod[2], '', 'the claim it would have rested on failed meanwhile')
    back = back + 1
  end
end
for _, pod in ipairs(plan.nodes) do adopt_pod('node/' .. pod[3], '', pod[3], pod, 'an existing node has room') end
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
note('plan recorded', id, A[6], A[1])
return { 1, back }
