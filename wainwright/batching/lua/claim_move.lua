-- name, holder, from (states joined by `|`), to, then field, value, ... → 1, or 0: not held, or in another state
-- An empty `to` sets the fields and leaves the state. A claim that is in `to` already stays there (a repeated step).
if not leased(A[1], A[2]) then return 0 end
-- A failing claim that is taken after all covers its pods again, unless a claim that is not failing has them.
local function cover_pods()
  local plan = redis.call('HGET', P .. 'claim:' .. A[1], 'plan') or ''
  for _, uid in ipairs(redis.call('HKEYS', P .. 'claim:' .. A[1] .. ':pods')) do
    local held = string.match(redis.call('HGET', P .. 'planned', uid) or '', '^%S+')
    local other = held and string.match(held, '^claim/(.*)$')
    local state = other and redis.call('HGET', P .. 'claim:' .. other, 'state')
    if not held or (other and (not state or state == 'failing' or state == 'failed')) then
      redis.call('HSET', P .. 'planned', uid, 'claim/' .. A[1] .. ' ' .. plan)
    end
  end
end
local key = P .. 'claim:' .. A[1]
local state = redis.call('HGET', key, 'state')
if state ~= A[4] and not string.find('|' .. A[3] .. '|', '|' .. state .. '|', 1, true) then return 0 end
if A[4] ~= '' and state ~= A[4] then
  redis.call('HSET', key, 'state', A[4])
  if A[4] == 'launched' then
    redis.call('HSET', key, 'launched_ms', int(NOW))
    if state == 'failing' then cover_pods() end
  end
  note('claim ' .. A[4], A[1], redis.call('HGET', key, 'reason') or '', A[2])
end
for i = 5, #A, 2 do redis.call('HSET', key, A[i], A[i + 1]) end
return 1
