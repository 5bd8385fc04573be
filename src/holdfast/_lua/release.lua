-- Give back what a token has, and hand the lock over to the next in line.
-- KEYS     lock, state, queue
-- ARGV     token; 'release': the lock | 'leave': the place in the queue too | 'bury': and refuse this token from now on
-- RETURNS  1 it was held, and is not any more | 0 the lock was free | -1 somebody else's value is there, and stays
-- SINCE    Redis 5
-- INCLUDE  _queue
--
-- The first write is DEL (or ZREM): a script may go on writing when memory is full if its first write frees some.
local lock, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, mode = ARGV[1], ARGV[2]
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return -1 end
if holder == token then redis.call('DEL', lock) end
local seen = look(lock, state, queue)
if not seen then return holder == token and 1 or (holder and -1 or 0) end

if mode ~= 'release' then leave(state, queue, token) end
if mode == 'bury' then
  -- The list is capped: 46 characters a token, the newest hundred.
  local dead = (seen[2][2] or '') .. token .. ' '
  redis.call('HSET', state, 'v', '1', 'dead', string.sub(dead, -100 * (#token + 1)))
  keep(state, queue, 0)
end
if seen[3][1] and (holder == token or not holder) then
  hand_over(lock, state, queue, now_us(), false)
end
if holder == token then return 1 end
return holder and -1 or 0
