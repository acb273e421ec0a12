-- nodepool, its uid, lock of its shard, epoch ('' = any), then uid, namespace/name of each pod (500 at most)
-- → {'gone'}: the NodePool is not in use under that UID; {'view'}: another epoch, or the view is not complete;
--   else {'ok', hint, server ms, place of each pod, in order}. place: its value in `seen`, or '' when it is in none
--   (its gate is open: it is in a live plan, waits to be retried, or is set aside). hint: 1 when the window opened or
--   filled up and nobody holds the shard's lock.
if redis.call('HGET', P .. 'nodepools', A[1]) ~= A[2] then return {'gone'} end
if A[4] ~= '' then
  local meta = redis.call('HMGET', P .. 'view:meta', 'epoch', 'complete')
  if meta[1] ~= A[4] or meta[2] ~= '1' then return {'view'} end
end
local uids, buried = {}, {}
for i = 5, #A, 2 do
  uids[#uids + 1] = A[i]
  buried[#buried + 1] = 'pod/' .. A[i]
end
local reply = {'ok', 0, NOW}
if #uids == 0 then return reply end
local seen = redis.call('HMGET', P .. 'seen', unpack(uids))
local planned = redis.call('HMGET', P .. 'planned', unpack(uids))
local retry = redis.call('ZMSCORE', P .. 'retry', unpack(uids))
local dead = redis.call('HMGET', P .. 'dead', unpack(buried))
local places, news = {}, {}
for i, uid in ipairs(uids) do
  if places[uid] == nil then
    if seen[i] then
      places[uid] = seen[i]
    elseif planned[i] or retry[i] or dead[i] then
      places[uid] = ''
    else
      local id = redis.call('XADD', P .. 'pending:' .. A[1], '*', 'v', '1', 'uid', uid, 'pod', A[4 + 2 * i])
      places[uid] = A[1] .. '/' .. id
      news[#news + 1] = uid
      news[#news + 1] = places[uid]
    end
  end
  reply[3 + i] = places[uid]
end
if #news > 0 then
  redis.call('HSET', P .. 'seen', unpack(news))
  local _, sooner = touch_window(A[1], true, #news / 2)
  if sooner and redis.call('EXISTS', P .. 'lock:' .. A[3]) == 0 then reply[2] = 1 end
end
return reply
