-- Hand the lock of an election over to a named candidate, wherever it is in the queue; if there is none, nothing changes.
-- KEYS     lock, state, queue, observers
-- ARGV     token; name of the candidate
-- RETURNS  {1} handed over; the same again for the same token | {0} the token does not hold the lock (any more)
--          {NO_CANDIDATE, name, name, ...}                      no such candidate can be notified; names in the queue
--          WRONG_TYPE and OTHER_FORMAT  as in proclaim; NO_NUMBER as in lock/acquire
-- SINCE    Redis 5
-- MODEL    models/election.pml
-- CODES    GRANTED NO_CANDIDATE
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_waiters
-- INCLUDE  shared/_notify
local lock, state, queue, observers, token, wanted = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2]
local MOST = 1000  -- maximum number of waiters read, because a longer run would delay other clients
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields, refusal = read_lock(state, token)
if not fields then return refusal end
local listed = redis.pcall('ZCARD', observers)
if type(listed) == 'table' then return refused(observers, listed) end
local line = redis.pcall('ZRANGE', queue, 0, MOST - 1)
if line.err then return refused(queue, line) end
if redis.call('HGET', state, 'given') == token then return {1} end
if holder ~= token then return {0} end

local now, names = now_us(), {NO_CANDIDATE}
for _, candidate in ipairs(line) do
  local at, name = unpack(redis.call('HMGET', state, 'at:' .. candidate, 'as:' .. candidate))
  local inbox = inbox_of(lock, candidate)
  at = whole(at)
  local lively = at and at * 1000 - now >= (PLACE - CLAIM) * 1000  -- otherwise its process may hang, as in hand_over
  if name and lively and listens(inbox) then
    if name == wanted then
      local left = redis.call('PTTL', lock)
      local first = take(lock, state, candidate, CLAIM, now, fields[1])
      local heard = publish(inbox, GRANTED .. ' ' .. candidate .. ' ' .. integer(first))
      if type(heard) == 'number' and heard > 0 then
        leave(state, queue, candidate)
        redis.call('HSET', state, 'given', token)
        tell(observers)
        return {1}
      end
      redis.call('SET', lock, token, 'PX', math.max(1, left))
      fields[1] = first + BLOCK - 1
    else
      names[#names + 1] = string.sub(name, 1, 800)
    end
  end
end
return names
