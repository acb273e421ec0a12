-- nodepool, uid, then NodePool names in priority order: takes a NodePool into use under its UID. One that was in use
-- under the same name with another UID is deleted first, and its queued pods are routed anew (to this one too).
-- → 1 when it is new, 0 when it was in use already
local held = redis.call('HGET', P .. 'nodepools', A[1])
if held == A[2] then return 0 end
local queued = {}
if held then queued = retire_pool(A[1], held) end
redis.call('HSET', P .. 'nodepools', A[1], A[2])
local preferred = {}
for i = 3, #A do preferred[#preferred + 1] = A[i] end
if #queued > 0 then route_anew(queued, preferred, 'NodePool ' .. A[1] .. ' replaced') end
return 1
