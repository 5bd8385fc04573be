-- Renew or release one lock while its slot is on its way to another server of a Cluster: keys that exist go one by one, and
-- nobody is served who names several of which one does not exist. Renewal, then, and giving it back, without the other keys.
-- KEYS     lock
-- ARGV     token; lease in ms, '0' to give it back
-- RETURNS  1 it was held, and has that lease at least, or is given back | 0 the lock is gone |
--          NO_CLAIM somebody else's value is there
-- SINCE    Redis 5
-- MODEL    models/lease.pml
--
-- Never makes a lease shorter: with no number to compare, an older request that comes late must do no harm. Hands over to nobody:
-- those in the queue find it free when they ask, within a second of the end of the move.
-- CODES    NO_CLAIM
local lock, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local holder = redis.pcall('GET', lock)
if holder ~= token then return holder and NO_CLAIM or 0 end
if ttl == 0 then
  redis.call('DEL', lock)
elseif redis.call('PTTL', lock) < ttl then
  redis.call('PEXPIRE', lock, ttl)
end
return 1
