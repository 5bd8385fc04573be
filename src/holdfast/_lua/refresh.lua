-- A sign of life of one process for all its waiters on this server. Extends their places, grants by reply what a lost
-- message granted, and helps: a free lock with somebody in line is handed over here. Never inserts.
-- KEYS     lock, state, queue of each waiter, one after the other
-- ARGV     the process's inbox; then token and lease in ms of each waiter
-- RETURNS  {inbox has a listener 1/0 (1 where the server will not say), answer, answer, ...}; an answer is
--          {1, fence} held, for the full lease | {0, remaining ms, last fence, holder's process} still waiting |
--          {-1} no such place: start again with a new token | {-2, key, type} and {-3, version} as in acquire
-- SINCE    Redis 5
-- INCLUDE  _queue
local listening = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1])
local answers = {listening.err and 1 or math.min(1, listening[2])}
local now = now_us()

local function refresh(lock, state, queue, token, ttl)
  local seen, refusal = look(lock, state, queue)
  if not seen then return refusal.err and {-4, refusal.err} or refusal end
  local holder, fence = seen[1], seen[2][1]
  if holder == token then
    if not fence then return {1, take(lock, state, queue, token, ttl, now)} end
    redis.call('PEXPIRE', lock, integer(ttl))
    keep(state, queue, ttl)
    return {1, tonumber(fence)}
  end
  if redis.call('HEXISTS', state, 'at:' .. token) == 0 then return {-1} end
  redis.call('HSET', state, 'at:' .. token, integer(now / 1000 + PLACE))
  keep(state, queue, ttl)
  if not holder and hand_over(lock, state, queue, now, token) == token then
    leave(state, queue, token)
    return {1, take(lock, state, queue, token, ttl, now)}
  end
  return waiting(lock, state)
end

for i = 1, #KEYS / 3 do
  answers[i + 1] = refresh(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i], tonumber(ARGV[2 * i + 1]))
end
return answers
