-- → for each claim with a record: { name, state, uid, node, launched_ms, 1 when somebody holds it, how many ms ago the
-- last pod was bound (-1: not over yet) }
local answer = {}
for _, name in ipairs(redis.call('ZRANGE', P .. 'claims', 0, -1)) do
  local record = redis.call('HMGET', P .. 'claim:' .. name, 'state', 'uid', 'node', 'launched_ms', 'lease_until_ms',
    'bound_ms')
  if not record[1] then
    redis.call('ZREM', P .. 'claims', name)
  else
    answer[#answer + 1] = { name, record[1], record[2] or '', record[3] or '', record[4] or '0',
      tonumber(record[5] or '0') > NOW and 1 or 0,
      record[6] and int(NOW - tonumber(record[6])) or '-1' }
  end
end
return answer
