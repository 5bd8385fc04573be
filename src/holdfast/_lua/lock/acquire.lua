-- Acquire a lock, or return how long to wait, or join the queue.
-- KEYS     lock, state, queue; marker, if the lock has quarantine=
-- ARGV     token (if it ends in '~', the holder may keep the lock after use until another client asks); lease in ms;
--          '1' to join the queue when the lock is busy (only with a subscribed inbox), else '0'; if the holder has used up
--          its fences: how many more it wants, else '0' if an argument follows; with a marker: the longest lease in ms
-- RETURNS  {1, first fence, last fence}       held, for the full lease; the same again for the same token, unless more are wanted
--          {0, remaining ms, last fence, holder's process, 1 if the holder may keep it after use}
--                                             busy; remaining -1: the holder's key has no expiry; process 'guard': see _quarantine
--          {NO_CLAIM}                         this token was revoked: the request is a late copy of an abandoned one
--          {WRONG_TYPE, key, type}            the key has other data; nothing was written
--          {OTHER_FORMAT, version}            written by an incompatible release
--          {NO_NUMBER, key, field, text}      the field is not a number; nothing was written
-- SINCE    Redis 5 (SET PX, TIME before a write)
-- MODEL    models/lock_handover.pml
--
-- A waiter that joins notifies the holder's process, if that is not its own: 'WANTED <holder's token>' in the inbox of that
-- process.
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_grant
local lock, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, ttl = ARGV[1], tonumber(ARGV[2])

-- Fast path: the lock is free, has no queue, and was used lately. It runs before the definitions that only other runs need.
if not KEYS[4] and redis.call('EXISTS', lock, queue) == 0 then
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep')
  local last, dead, kept = tonumber(fields[1]), fields[2], tonumber(fields[4])
  if fields[3] == '1' and last and kept and not (dead and string.find(dead, token, 1, true)) then
    local t = redis.call('TIME')
    local left = kept - t[1] * 1000 - 1000
    if left > KEEP and left > 2 * ttl and kept <= MOST and last <= MOST and not string.find(fields[1], '%D') then
      return {1, take(lock, state, token, ttl, t[1] * 1000000 + t[2], last)}
    end
  end
end

-- CODES    NO_CLAIM WANTED
-- INCLUDE  shared/_state
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_waiters
-- INCLUDE  lock/_handover
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields, refusal = read_lock(state, token)
if not fields then return refusal end
local waiters = redis.pcall('ZCARD', queue)
if type(waiters) == 'table' then return refused(queue, waiters) end
if fields[2] and string.find(fields[2], token, 1, true) then return {NO_CLAIM} end

local now, last = now_us(), fields[1]
local pause, denied
if KEYS[4] then
  -- INCLUDE  lock/_quarantine
  pause, denied = lock_quarantine(KEYS[4], tonumber(ARGV[#ARGV]), now)
end
if denied then return denied end
if holder == token and last then
  keep_alive(state, queue, fields[4], ttl, now)
  local more = tonumber(ARGV[4] or 0)
  if more > 0 then redis.call('HSET', state, 'fence', last + more) end
  extend(lock, ttl)
  if more > 0 then return {1, last + 1, last + more} end
  return {1, last - BLOCK + 1, last}
end

if waiters > 0 and not (holder or pause) then
  holder, last = hand_over(lock, state, queue, now, token, last)
end
if holder == token or not (holder or pause) then  -- or the token holds it, but the state was lost
  if waiters > 0 then leave(state, queue, token) end
  keep_alive(state, queue, fields[4], ttl, now)
  return {1, take(lock, state, token, ttl, now, last)}
end
if ARGV[3] == '1' then
  local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  redis.call('HSET', state, 'at:' .. token, math.floor(now / 1000) + PLACE)
  redis.call('ZADD', queue, 'NX', math.max(now, (tonumber(tail[2]) or 0) + 1), token)
  keep_alive(state, queue, fields[4], ttl, now)
  if redis.call('PTTL', queue) == -1 then  -- this waiter has created the queue, without an expiry
    redis.call('PEXPIRE', queue, math.max(KEEP, redis.call('PTTL', state)))
  end
end
local answer = waiting(lock, holder, last, pause, now)
local process = answer[4]
if ARGV[3] == '1' and holder and process ~= '' and process ~= string.match(token, '^[^.]+') then
  publish(inbox_of(lock, holder), WANTED .. ' ' .. holder)
end
return answer
