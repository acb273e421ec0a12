-- reason: something changed that could help a pod that was not placed. Only noted here, so it may come often; acted on
-- by take_due.
redis.call('HSET', P .. 'retry:woken', 'at_ms', int(NOW), 'reason', A[1])
return 1
