-- nodepool, uid, then NodePool names in priority order: takes a NodePool out of use. Its waiters are released, its
-- queued pods go to the first of the named ones that is in use, else to the first by name; with none they stay in the
-- view, where a resync finds them.
-- → {0}: it was not in use under that UID; {1, name of the NodePool that took them or '', uid, pod, ...}
if redis.call('HGET', P .. 'nodepools', A[1]) ~= A[2] then return {0} end
redis.call('HDEL', P .. 'nodepools', A[1])
local queued, preferred = retire_pool(A[1], A[2]), {}
for i = 3, #A do preferred[#preferred + 1] = A[i] end
local reply = {1, ''}
if #queued > 0 then reply[2] = route_anew(queued, preferred, 'NodePool ' .. A[1] .. ' deleted') end
for _, item in ipairs(queued) do
  reply[#reply + 1] = item[1]
  reply[#reply + 1] = item[2]
end
return reply
