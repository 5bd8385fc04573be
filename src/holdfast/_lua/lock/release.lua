-- Release a token's lock or place in the queue, and hand the lock over to the first live waiter.
-- KEYS     lock, state, queue; marker, if the lock has quarantine=
-- ARGV     token; 'release': release the lock | 'leave': also remove the token's place in the queue | 'bury': do both, and
--          revoke the token; with a marker: the longest lease in ms
-- RETURNS  1 it was held, and is released | 0 the lock was free | NO_CLAIM the key has another value, which stays
-- SINCE    Redis 5
-- MODEL    models/lock_handover.pml
--
-- The first write is DEL (or ZREM): a script may go on writing when memory is full if its first write frees some.
-- CODES    NO_CLAIM
local lock, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, mode = ARGV[1], ARGV[2]
local holder = redis.pcall('GET', lock)
local answer = holder and NO_CLAIM or 0
if holder == token then
  redis.call('DEL', lock)
  answer = 1
elseif type(holder) == 'table' then
  return NO_CLAIM
end
if mode == 'release' and redis.call('EXISTS', queue) == 0 then return answer end

-- INCLUDE  shared/_state
-- INCLUDE  shared/_waiters
-- INCLUDE  lock/_handover
local waiters = redis.pcall('ZCARD', queue)
if type(waiters) == 'table' then return answer end
local fields = read_lock(state, token)
if not fields then return answer end

if mode ~= 'release' then leave(state, queue, token) end
if mode == 'bury' then
  revoke(state, fields[2], token)
  keep_alive(state, queue, fields[4], 0, now_us())
end
if waiters > 0 and answer ~= NO_CLAIM then
  local now = now_us()
  local pause, denied
  if KEYS[4] then
    -- INCLUDE  lock/_quarantine
    pause, denied = lock_quarantine(KEYS[4], tonumber(ARGV[#ARGV]), now)
  end
  if not (pause or denied) then hand_over(lock, state, queue, now, false, fields[1]) end
end
return answer
