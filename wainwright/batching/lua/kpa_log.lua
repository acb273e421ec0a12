-- autoscaler, from, to, reason, why, target: one scaling act, on record for a day with the autoscaler and among all decisions
local key = P .. 'kpa:log:' .. A[1]
redis.call('XADD', key, 'MAXLEN', '~', '50', '*', 'v', '1', 'from', A[2], 'to', A[3], 'reason', A[4], 'why', A[5],
  'target', A[6])
redis.call('PEXPIRE', key, 86400000)
note('scaled', 'podautoscaler/' .. A[1], A[2] .. ' to ' .. A[3] .. ' (' .. A[4] .. '): ' .. A[5], 'autoscaling')
return 1
