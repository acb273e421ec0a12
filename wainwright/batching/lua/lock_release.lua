-- name, holder, fence → 1 when it was held by exactly this holder and fence
if not holds(A[1], A[2], A[3]) then return 0 end
redis.call('DEL', P .. 'lock:' .. A[1])
return 1
