-- Refresh the places of all waiters of one process on this server. The reply also tells a waiter that it holds its lock, if the
-- message about that was lost. A free lock is handed over to the first live waiter. No waiter is added to a queue.
-- KEYS     lock, state, queue of each waiter, one after the other; marker, if their locks have quarantine=
-- ARGV     the process's inbox; then token and lease in ms of each waiter; with a marker: the longest lease in ms
-- RETURNS  {inbox has a listener 1/0 (1 if the server does not say), answer, answer, ...}; an answer is
--          {1, first fence, last fence} held, for the full lease |
--          {0, remaining ms, last fence, holder's process, 1 if the holder may keep it after use} still waiting |
--          {NO_CLAIM} no such place: start again with a new token | WRONG_TYPE, OTHER_FORMAT and NO_NUMBER as in acquire
-- SINCE    Redis 5
-- MODEL    models/lock_handover.pml
-- CODES    NO_CLAIM SERVER_ERROR
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  shared/_waiters
-- INCLUDE  lock/_handover
local answers = {listens(ARGV[1]) and 1 or 0}
local now = now_us()
local pause, denied
if #KEYS % 3 == 1 then
  -- INCLUDE  lock/_quarantine
  pause, denied = lock_quarantine(KEYS[#KEYS], tonumber(ARGV[#ARGV]), now)
end

local function refresh(lock, state, queue, token, ttl)
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return refused(lock, holder) end
  if denied then return denied end
  local fields, refusal = read_lock(state, token)
  if not fields then return refusal end
  local last, place = fields[1], fields[5]
  if not place and holder ~= token then return {NO_CLAIM} end
  local waiters = holder and 0 or redis.pcall('ZCARD', queue)  -- usually the lock is held, and the queue does not matter
  if type(waiters) == 'table' then return refused(queue, waiters) end

  keep_alive(state, queue, fields[4], ttl, now)
  if holder == token then
    if not last then return {1, take(lock, state, token, ttl, now)} end
    extend(lock, ttl)
    return {1, last - BLOCK + 1, last}
  end
  redis.call('HSET', state, 'at:' .. token, math.floor(now / 1000) + PLACE)
  if not (holder or pause) then
    holder, last = hand_over(lock, state, queue, now, token, last)
    if not holder or holder == token then  -- the caller is alive, and gets it if those in front do not listen
      leave(state, queue, token)
      return {1, take(lock, state, token, ttl, now, last)}
    end
  end
  return waiting(lock, holder, last, pause, now)
end

for i = 1, #KEYS / 3 do
  local answer = refresh(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i], tonumber(ARGV[2 * i + 1]))
  answers[i + 1] = answer.err and {SERVER_ERROR, answer.err} or answer
end
return answers
