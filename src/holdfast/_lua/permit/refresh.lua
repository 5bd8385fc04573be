-- Refresh the places of all waiters of one process for permits on this server. The reply also tells a waiter that it holds its
-- permits, if the message about that was lost. Free permits are granted to the next waiters. No waiter is added to a queue.
-- KEYS     holders, state, queue of each waiter, one after the other
-- ARGV     the process's inbox; then token and lease in ms of each waiter
-- RETURNS  {inbox has a listener 1/0 (1 if the server does not say), answer, answer, ...}; an answer is
--          {1, fence, fence} held, for the full lease |
--          {0, remaining ms, last fence, process of the holder whose lease ends first, 0} still waiting |
--          {NO_CLAIM} no such place: start again with a new token | WRONG_TYPE, OTHER_FORMAT and NO_NUMBER as in acquire
-- SINCE    Redis 5
-- MODEL    models/permit.pml
-- CODES    NO_CLAIM SERVER_ERROR
-- INCLUDE  shared/_waiters
-- INCLUDE  permit/_permits
local answers = {listens(ARGV[1]) and 1 or 0}

local function refresh(holders, state, queue, token, ttl)
  local p, refusal = open_permits(holders, state, queue, token)
  if refusal then return refusal end
  if not p.limit then return {NO_CLAIM} end
  local held = confirm(p, token, ttl)
  if held then
    keep_permits(p, ttl)
    return {1, held, held}
  end
  if not p.place then return {NO_CLAIM} end
  redis.call('HSET', state, 'at:' .. token, p.now_ms + PLACE)
  keep_permits(p, ttl)
  local fence, blocked = serve(p, token, ttl)
  if not fence and not blocked and p.used + wanted(token) <= p.limit then  -- the caller is alive, and is served if those in front do not listen
    leave(state, queue, token)
    fence = admit(p, token, ttl)
  end
  return fence and {1, fence, fence} or waiting_for(p)
end

for i = 1, #KEYS / 3 do
  local answer = refresh(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i], tonumber(ARGV[2 * i + 1]))
  answers[i + 1] = answer.err and {SERVER_ERROR, answer.err} or answer
end
return answers
