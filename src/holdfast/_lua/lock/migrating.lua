-- Renew or release one lock while its slot is moved to another server of a Cluster. Keys are moved one by one. The server
-- refuses a script that names several keys if one of them is missing, so this script uses the lock's key alone.
-- KEYS     lock
-- ARGV     token; lease in ms, '0' to release it
-- RETURNS  UNNUMBERED it is held, and has at least that lease | 1 it was held, and is released | 0 the lock is gone |
--          NO_CLAIM the key has another value
-- SINCE    Redis 5
-- MODEL    models/lock_lease.pml
--
-- It never shortens a lease: requests have no number here, so a late older request must do no harm. It does not hand the lock
-- over: after the move, the waiters ask within a second, and find the lock free.
-- CODES    NO_CLAIM UNNUMBERED
local lock, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local holder = redis.pcall('GET', lock)
if holder ~= token then return holder and NO_CLAIM or 0 end
if ttl == 0 then
  redis.call('DEL', lock)
  return 1
elseif redis.call('PTTL', lock) < ttl then
  redis.call('PEXPIRE', lock, ttl)
end
return UNNUMBERED
