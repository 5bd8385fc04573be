-- Renew or release the permits of one holder (`lock/migrating` does it for a lock), while the slot is on its way to another
-- server of a Cluster.
-- KEYS     holders
-- ARGV     token; lease in ms, '0' to give them back
-- RETURNS  1 it has them, and has that lease at least, or has given them back | 0 it has none
-- SINCE    Redis 5
-- MODEL    models/permits.pml
--
-- How many are held is written down in another key. So what is given back is made to have ended long ago: whatever script comes
-- next when all keys have arrived counts it out, and serves those in line, who ask within a second of that.
--
-- The first write is PEXPIRE: a script may go on writing when memory is full if its first write needs none. Never by less than a
-- second: by nothing, the key would be deleted, with all who hold, and made anew without an end.
local holders, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local until_ms, t = redis.pcall('ZSCORE', holders, token), redis.call('TIME')
local now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
if type(until_ms) ~= 'string' or tonumber(until_ms) <= now_ms then return 0 end
redis.call('PEXPIRE', holders, math.max(ttl, 1000, redis.call('PTTL', holders)))
if ttl == 0 then
  redis.call('ZADD', holders, 0, token)
elseif tonumber(until_ms) < now_ms + ttl then
  redis.call('ZADD', holders, now_ms + ttl, token)
end
return 1
