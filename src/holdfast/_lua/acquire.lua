-- Take a lock, or say how long to wait, or stand in line.
-- KEYS     lock, state, queue
-- ARGV     token; lease in ms; '1' to join the queue when the lock is busy (only with a subscribed inbox), else '0'
-- RETURNS  {1, fence}                         held, for the full lease; the same again for the same token
--          {0, remaining ms, last fence, holder's process}   busy; remaining -1: the holder's key has no expiry
--          {-1}                               this token was declared dead: a late copy of a request given up long ago
--          {-2, key, type}                    somebody's data is in the way; nothing was written
--          {-3, version}                      written by an incompatible release
-- SINCE    Redis 5 (SET PX, TIME before a write)
-- INCLUDE  _queue
local lock, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, ttl = ARGV[1], tonumber(ARGV[2])
local seen, refusal = look(lock, state, queue)
if not seen then return refusal end
local holder, fence, dead, head = seen[1], seen[2][1], seen[2][2], seen[3][1]
if dead and string.find(dead, token, 1, true) then return {-1} end

if holder == token then
  redis.call('PEXPIRE', lock, integer(ttl))
  if not fence then return {1, take(lock, state, queue, token, ttl, now_us())} end
  keep(state, queue, ttl)
  return {1, tonumber(fence)}
end

local now
if not holder then
  now = now_us()
  if not head or (hand_over(lock, state, queue, now, token) or token) == token then
    if head then leave(state, queue, token) end
    return {1, take(lock, state, queue, token, ttl, now)}
  end
end
if ARGV[3] == '1' then
  now = now or now_us()
  local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  redis.call('HSET', state, 'v', '1', 'at:' .. token, integer(now / 1000 + PLACE))
  redis.call('ZADD', queue, 'NX', integer(math.max(now, (tonumber(tail[2]) or 0) + 1)), token)
  keep(state, queue, ttl)
end
return waiting(lock, state)
