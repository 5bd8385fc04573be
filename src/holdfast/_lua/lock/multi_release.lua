-- Release several locks at once; each is handed over to the first live waiter in its queue.
-- KEYS     lock, state, queue of each, one after the other
-- ARGV     token; 'release' | 'bury' of each: as in release
-- RETURNS  {answer, answer, ...}, each as in release: 1 it was held, and is released | 0 the lock was free |
--          NO_CLAIM the key has another value, which stays
-- SINCE    Redis 5
-- MODEL    models/multilock.pml
--
-- The first writes are DEL: a script may go on writing when memory is full if its first write frees some.
-- CODES    NO_CLAIM
-- INCLUDE  shared/_state
-- INCLUDE  shared/_waiters
-- INCLUDE  lock/_handover
local answers = {}
for i = 1, #KEYS / 3 do
  local holder = redis.pcall('GET', KEYS[3 * i - 2])
  answers[i] = holder and NO_CLAIM or 0
  if holder == ARGV[2 * i - 1] then
    redis.call('DEL', KEYS[3 * i - 2])
    answers[i] = 1
  end
end

local function settle(lock, state, queue, token, mode, answer)
  local waiters = redis.pcall('ZCARD', queue)
  if type(waiters) == 'table' then return end
  local fields = read_lock(state, token)
  if not fields then return end
  if mode == 'bury' then
    leave(state, queue, token)
    revoke(state, fields[2], token)
    keep_alive(state, queue, fields[4], 0, now_us())
  end
  if waiters > 0 and answer ~= NO_CLAIM then hand_over(lock, state, queue, now_us(), false, fields[1]) end
end

for i = 1, #KEYS / 3 do
  settle(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1], ARGV[2 * i], answers[i])
end
return answers
