-- keys of autoscalers that are gone: forgets all that is known of them. → how many there were
local gone = 0
for _, key in ipairs(A) do
  gone = gone + redis.call('DEL', P .. 'kpa:state:' .. key)
  redis.call('HDEL', P .. 'kpa:specs', key)
  redis.call('SREM', P .. 'kpa:zero', key)
  redis.call('DEL', P .. 'kpa:log:' .. key)
end
return gone
