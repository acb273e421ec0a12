-- name, holder, fence, lease_ms → 1 while it is held by exactly this holder and fence, else 0
if not holds(A[1], A[2], A[3]) then return 0 end
redis.call('PEXPIRE', P .. 'lock:' .. A[1], A[4])
return 1
