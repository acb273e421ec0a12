-- name, holder → { fields (flat), pods (flat) } of a claim that is held, else nothing
if not leased(A[1], A[2]) then return {} end
local key = P .. 'claim:' .. A[1]
return { redis.call('HGETALL', key), redis.call('HGETALL', key .. ':pods') }
