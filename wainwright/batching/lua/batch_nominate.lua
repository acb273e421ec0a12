-- batch, keep_ms, keep_unready_ms → { { [uid, pod, node, claim], … } nominated, { [uid, pod, its line of `retries`], … }
-- not placed }; both empty when the batch is not planned
-- Carries out the placements of a planned batch that need no claim of its own: their room is kept for keep_ms, or, where
-- the node is not there, not Ready or still carries our taint, until it is (nominations_begin). Safe to repeat.
local key = P .. 'batch:' .. A[1]
local record = redis.call('HMGET', key, 'state', 'plan', 'items')
if record[1] ~= 'planned' then return { {}, {} } end
local open = {}
local function is_open(node)
  if open[node] == nil then
    open[node] = false
    local text = redis.call('HGET', P .. 'view:nodes', node)
    if text then
      local seen = cjson.decode(text)
      for _, condition in ipairs(seen.status and seen.status.conditions or {}) do
        if condition.type == 'Ready' and condition.status == 'True' then open[node] = true end
      end
      for _, taint in ipairs(seen.spec and seen.spec.taints or {}) do
        if taint.key == 'karpenter.sh/not-ready' then open[node] = false end
      end
    end
  end
  return open[node]
end
local nominated, unplaced = {}, {}
for _, item in ipairs(cjson.decode(record[3])) do
  local uid, pod = item[1], item[2]
  local kind, name, plan = string.match(redis.call('HGET', P .. 'planned', uid) or '', '^(%a+)/(%S+) ?(.*)$')
  if kind and plan == record[2] then
    local claim, node, mine = '', name, kind == 'node'
    if kind == 'claim' then
      local held = redis.call('HMGET', P .. 'claim:' .. name, 'state', 'node')
      local role = string.match(redis.call('HGET', P .. 'claim:' .. name .. ':pods', uid) or '', '^([^|]*)|')
      claim, node, mine = name, held[2] or '', held[1] == 'done' and role == 'rest'
    end
    if mine then
      redis.call('ZADD', P .. 'nominated', 'NX', int(NOW + tonumber(is_open(node) and A[2] or A[3])), uid)
      note_pod(pod, uid, 'nominated', 'left to kube-scheduler', plan, claim, node)
      nominated[#nominated + 1] = { uid, pod, node, claim }
    end
  elseif not kind then
    local line = redis.call('HGET', P .. 'retries', uid)
    if line and cjson.decode(line).plan == record[2] then unplaced[#unplaced + 1] = { uid, pod, line } end
  end
end
effect_over(A[1], 'nominate')
return { nominated, unplaced }
