-- name → { server time in ms, view:meta (flat), the NodePool in the view under the claim's name for it, or '',
-- [uid, meta, the pod in the view under its name, or ''], … }
local key = P .. 'claim:' .. A[1]
local pool = redis.call('HGET', key, 'nodepool') or ''
local answer = { int(NOW), redis.call('HGETALL', P .. 'view:meta'), redis.call('HGET', P .. 'view:nodepools', pool) or '' }
local pods = redis.call('HGETALL', key .. ':pods')
for i = 1, #pods, 2 do
  local name = string.match(pods[i + 1], '^[^|]*|([^|]*)|')
  answer[#answer + 1] = { pods[i], pods[i + 1], redis.call('HGET', P .. 'view:pods', name) or '' }
end
return answer
