-- Shared by the scripts that take a lock: the numbers of the format, and the grant itself. See _state for what the keys hold.
-- MODEL    models/handover.pml
local BLOCK = 33     -- fences of one grant: its own, and those with which its process passes the lock on among its threads

-- Writes the lock for `token` and draws its block of fences; answers the first and the last. The lock key comes last: nothing
-- is rolled back if a write is refused.
local function take(lock, state, token, ttl, now, last)
  local first = (last or 0) + 1
  if first < now then first = now end
  redis.call('HSET', state, 'fence', first + BLOCK - 1)
  redis.call('SET', lock, token, 'PX', ttl)
  return first, first + BLOCK - 1
end
