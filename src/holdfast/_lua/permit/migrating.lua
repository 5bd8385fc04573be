-- Renew or release the permits of one holder while the slot is moved to another server of a Cluster. `lock/migrating` does the
-- same for a lock.
-- KEYS     holders
-- ARGV     token; lease in ms, '0' to release them
-- RETURNS  UNNUMBERED they are held, with at least that lease | 1 they are released | 0 the token has none
-- SINCE    Redis 5
-- MODEL    models/permit.pml
--
-- The number of held permits is stored in another key, which this script cannot use. So it marks the released permits as expired
-- long ago. The first script that runs after all keys have been moved frees them, and serves the waiters, which ask within a
-- second.
--
-- The first write is PEXPIRE: a script may go on writing when memory is full if its first write needs none. The time is at
-- least a second: zero would delete the key with all holders, and it would be created again without an expiry.
-- CODES    UNNUMBERED
local holders, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local until_ms, t = redis.pcall('ZSCORE', holders, token), redis.call('TIME')
local now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
if type(until_ms) ~= 'string' or tonumber(until_ms) <= now_ms then return 0 end
redis.call('PEXPIRE', holders, math.max(ttl, 1000, redis.call('PTTL', holders)))
if ttl == 0 then
  redis.call('ZADD', holders, 0, token)
  return 1
elseif tonumber(until_ms) < now_ms + ttl then
  redis.call('ZADD', holders, now_ms + ttl, token)
end
return UNNUMBERED
