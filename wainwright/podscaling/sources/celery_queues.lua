-- key prefix, fresh_ms, most unacked read, queue, ...: what there is to do in each queue of a Celery broker.
-- → per queue {waiting, unacked (reserved or late-acknowledged running), running (early-acknowledged, as workers
--   publish it), workers that publish}
-- Keys and formats: kombu 5 (transport/redis.py): a list per queue and priority, the hash `unacked` with
-- [message, exchange, routing key] per delivery, `_kombu.binding.<exchange>` for exchanges that are not the default.
local prefix, fresh, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local SEP = '\6\22'

local bindings = {}
local function queue_of(exchange, routing_key)
  if exchange == '' then return routing_key end
  if not bindings[exchange] then
    local bound = {}
    for _, member in ipairs(redis.call('SMEMBERS', prefix .. '_kombu.binding.' .. exchange)) do
      local key, queue = string.match(member, '^(.-)' .. SEP .. '.-' .. SEP .. '(.*)$')
      if key then bound[key] = queue end
    end
    bindings[exchange] = bound
  end
  return bindings[exchange][routing_key] or routing_key
end

local unacked = {}
local hash = prefix .. 'unacked'
local total, read, cursor = redis.call('HLEN', hash), 0, '0'
if total > 0 then
  repeat
    local page = redis.call('HSCAN', hash, cursor, 'COUNT', 1000)
    cursor = page[1]
    for i = 2, #page[2], 2 do
      local exchange, key = string.match(page[2][i], ',%s*"([^"]*)",%s*"([^"]*)"%s*%]%s*$')
      if key then
        local queue = queue_of(exchange, key)
        unacked[queue] = (unacked[queue] or 0) + 1
      end
      read = read + 1
    end
  until cursor == '0' or read >= most
end

local reply = {}
for q = 4, #ARGV do
  local queue = ARGV[q]
  local waiting = redis.call('LLEN', prefix .. queue)
  for priority = 1, 9 do waiting = waiting + redis.call('LLEN', prefix .. queue .. SEP .. priority) end
  local held = unacked[queue] or 0
  if read < total then held = math.floor(held * total / read + 0.5) end
  local running, workers = 0, 0
  local published = redis.call('HGETALL', prefix .. 'wainwright:celery-load:' .. queue)
  for i = 2, #published, 2 do
    local at, count = string.match(published[i], '^(%d+) (%d+) %d+$')
    if at and now - tonumber(at) <= fresh then
      running = running + tonumber(count)
      workers = workers + 1
    end
  end
  reply[#reply + 1] = {waiting, held, running, workers}
end
return reply
