-- Shared by the scripts that grant a lock: the block of fences, and the grant itself. The keys are described in _state.
-- MODEL    models/lock_handover.pml
local BLOCK = 33     -- fences of one grant: its own, and those for handing the lock on among the threads of its process

-- Grant the lock to `token` and issue its block of fences; return the first and the last. The lock key is written last, because
-- nothing is rolled back if a write is refused.
local function take(lock, state, token, ttl, now, last)
  local first = (last or 0) + 1
  if first < now then first = now end
  redis.call('HSET', state, 'fence', first + BLOCK - 1)
  redis.call('SET', lock, token, 'PX', ttl)
  return first, first + BLOCK - 1
end
