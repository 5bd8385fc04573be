-- Release one server's vote, and notify the longest-waiting client that the lock is free here.
-- KEYS     lock, state, listeners
-- ARGV     token; 'release': release the lock | 'leave': release it, but notify a client only if this subscription was the last
--          one notified | 'bury': release it, and revoke the token; id of the subscription to end, or ''
-- RETURNS  1 it was held, and is released | 0 the lock was free | NO_CLAIM the key has another value, which stays
-- SINCE    Redis 5
-- MODEL    models/quorum_fence.pml
--
-- The first write is DEL (or ZREM): a script may go on writing when memory is full if its first write frees some.
-- CODES    NO_CLAIM
local lock, state, listeners = KEYS[1], KEYS[2], KEYS[3]
local token, mode, listener = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.pcall('GET', lock)
local answer = holder and NO_CLAIM or 0
if holder == token then
  redis.call('DEL', lock)
  answer = 1
elseif type(holder) == 'table' then
  return NO_CLAIM
end
if mode == 'release' and redis.call('EXISTS', listeners) == 0 then return answer end

-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
local WINDOW = 100  -- ms for which the lock is reserved for the notified client: two round trips to a distant server
local now = now_us()
local fields = redis.pcall('HMGET', state, 'dead', 'v', 'keep', 'next')
if fields.err or (fields[2] and fields[2] ~= '1') then return answer end
if type(redis.pcall('ZCARD', listeners)) == 'table' then return answer end

local gone = false
if listener ~= '' then
  redis.call('ZREM', listeners, listener)
  gone = fields[4] and string.match(fields[4], '^%S+') == listener
  if gone then redis.call('HDEL', state, 'next') end
end
if mode == 'bury' then
  revoke(state, fields[1], token)
  keep_alive(state, listeners, fields[3], 0, now)
end
if (mode ~= 'leave' and answer == 1) or (gone and answer ~= NO_CLAIM) then
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', listeners, 0, 0, 'WITHSCORES')
    if not first[1] then break end
    redis.call('ZREM', listeners, first[1])
    local heard = notify(lock, first[1])
    if type(heard) == 'number' and heard > 0 then
      local until_ms = integer(math.floor(now / 1000) + WINDOW)
      redis.call('HSET', state, 'next', first[1] .. ' ' .. integer(tonumber(first[2])) .. ' ' .. until_ms)
      break
    end
  end
end
return answer
