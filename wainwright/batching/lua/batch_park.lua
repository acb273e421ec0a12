-- holder, fence, batch: sets the one pod of a batch aside in `dead`, since solving it kills the solver → 1, or 0
if not holds('solve', A[1], A[2]) then return 0 end
local items = cjson.decode(redis.call('HGET', P .. 'batch:' .. A[3], 'items') or '[]')
for _, item in ipairs(items) do
  redis.call('HSET', P .. 'dead', 'pod/' .. item[1], cjson.encode({
    reason = 'the solver died four times with this pod in its batch, the last time with it alone',
    at_ms = NOW, what = item[2] }))
  note_pod(item[2], item[1], 'set aside', 'solving it kills the solver', '', '', '')
end
flush(A[3], 'parked')
return 1
