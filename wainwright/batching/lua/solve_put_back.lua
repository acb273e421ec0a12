-- holder, fence → batches put back: their solver lives and could not solve them now, so nobody died with them
if not holds('solve', A[1], A[2]) then return 0 end
local back = 0
for _, id in ipairs(redis.call('ZRANGE', P .. 'batches:closed', 0, -1)) do
  local key = P .. 'batch:' .. id
  if redis.call('HGET', key, 'solver') == A[1] .. '/' .. A[2] then
    redis.call('HSET', key, 'solver', '')
    back = back + 1
  end
end
return back
