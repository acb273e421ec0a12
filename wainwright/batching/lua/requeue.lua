-- lock ('' = none asked), holder, fence, batch, why: ends a closed batch and queues its pods anew
-- → number of pods queued; -1: the lock is not held by exactly this holder; -2: the batch is not `closed`
if A[1] ~= '' and not holds(A[1], A[2], A[3]) then return -1 end
local record = redis.call('HMGET', P .. 'batch:' .. A[4], 'state', 'nodepool', 'items')
if record[1] ~= 'closed' then return -2 end
flush(A[4], 'queued anew: ' .. A[5])
local count, preferred = 0, {record[2]}
for _, item in ipairs(cjson.decode(record[3])) do
  local uid, pod = item[1], item[2]
  if may_be_pending(uid) and redis.call('HEXISTS', P .. 'seen', uid) == 0
    and redis.call('HEXISTS', P .. 'planned', uid) == 0 then
    local pool = stand_in(preferred)
    if pool and enqueue(pool, uid, pod, true) then
      note_pod(pod, uid, 'queued anew', A[5], '', '', '')
      count = count + 1
    end
  end
end
return count
