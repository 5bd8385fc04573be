-- Take a lock, or say how long to wait, or stand in line.
-- KEYS     lock, state, queue
-- ARGV     token (one that ends in '~': its holder may keep the lock after use, and gives it back when asked); lease in ms;
--          '1' to join the queue when the lock is busy (only with a subscribed inbox), else '0'; if the holder has used up
--          his fences: how many more he wants
-- RETURNS  {1, first fence, last fence}       held, for the full lease; the same again for the same token, unless more are wanted
--          {0, remaining ms, last fence, holder's process, 1 if the holder may keep it after use}
--                                             busy; remaining -1: the holder's key has no expiry
--          {-1}                               this token was declared dead: a late copy of a request given up long ago
--          {-2, key, type}                    somebody's data is in the way; nothing was written
--          {-3, version}                      written by an incompatible release
-- SINCE    Redis 5 (SET PX, TIME before a write)
-- MODEL    models/handover.pml
-- INCLUDE  _queue
--
-- Who joins tells the holder's process, if it is another one, that somebody outside waits: '2 <holder's token>' in its inbox.
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
  if not fields[1] then return {1, take(lock, state, token, ttl, now)} end
  local last = tonumber(fields[1])
  if ARGV[4] then redis.call('HSET', state, 'fence', last + ARGV[4]) end
  extend(lock, ttl)
  if ARGV[4] then return {1, last + 1, last + ARGV[4]} end
  return {1, last - BLOCK + 1, last}
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
local answer, other = waiting(lock, state)
if ARGV[3] == '1' and answer[4] ~= '' and answer[4] ~= string.match(token, '^[^.]+') then
  redis.pcall('PUBLISH', 'hf:inbox:' .. answer[4], '2 ' .. other)
end
return answer
