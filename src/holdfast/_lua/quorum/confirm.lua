-- Confirm a fence: raise this server's counter to the last of the agreed fences, if the token still holds the lock and
-- the counter is not higher. When a majority of the servers has confirmed the fences, the holder may use them. Writing the
-- highest fence granted to any majority would not be enough (see the model).
-- KEYS     lock, state
-- ARGV     token; last fence
-- RETURNS  1 confirmed | 0 the token does not hold the lock any more, or the stored fence is higher or not a number
-- SINCE    Redis 5
-- MODEL    models/quorum_fence.pml
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = redis.pcall('HGET', KEYS[2], 'fence')
if whole(last or 0, MOST) > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[2], 'fence', ARGV[2])
return 1
