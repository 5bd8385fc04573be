-- Take a lock, or say how long to wait, or stand in line.
-- KEYS     lock, state, queue
-- ARGV     token; lease in ms; '1' to join the queue when the lock is busy (only with a subscribed inbox), else '0'
-- RETURNS  {1, fence}                         held, for the full lease; the same again for the same token
--          {0, remaining ms, last fence, holder's process}   busy; remaining -1: the holder's key has no expiry
--          {-1}                               this token was declared dead: a late copy of a request given up long ago
--          {-2, key, type}                    somebody's data is in the way; nothing was written
--          {-3, version}                      written by an incompatible release
-- SINCE    Redis 5 (SET PX, TIME before a write)
-- MODEL    models/handover.pml
-- INCLUDE  _queue
local lock, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, ttl = ARGV[1], tonumber(ARGV[2])
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields, refusal = read_state(state)
if not fields then return refusal end
local head = redis.pcall('ZRANGE', queue, 0, 0)
if head.err then return refused(queue, head) end
if fields[2] and string.find(fields[2], token, 1, true) then return {-1} end

local now = now_us()
if holder == token then
  keep_alive(state, queue, fields[4], ttl, now)
  if fields[1] then
    extend(lock, ttl)
    return {1, tonumber(fields[1])}
  end
  return {1, take(lock, state, token, ttl, now)}
end

if not holder then
  if not head[1] then
    keep_alive(state, queue, fields[4], ttl, now)
    return {1, take(lock, state, token, ttl, now, fields[1])}
  end
  local next_one, last = hand_over(lock, state, queue, now, token, fields[1])
  if not next_one or next_one == token then
    leave(state, queue, token)
    keep_alive(state, queue, fields[4], ttl, now)
    return {1, take(lock, state, token, ttl, now, last)}
  end
end
if ARGV[3] == '1' then
  local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  redis.call('HSET', state, 'at:' .. token, math.floor(now / 1000) + PLACE)
  redis.call('ZADD', queue, 'NX', math.max(now, (tonumber(tail[2]) or 0) + 1), token)
  keep_alive(state, queue, fields[4], ttl, now)
  if redis.call('PTTL', queue) == -1 then  -- the first in line has made the queue anew
    redis.call('PEXPIRE', queue, math.max(KEEP, redis.call('PTTL', state)))
  end
end
return waiting(lock, state)
