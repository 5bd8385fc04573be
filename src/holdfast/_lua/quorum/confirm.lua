-- The fences that the servers have agreed on: raise this server's to the last of them, if the lock is still the token's and
-- nobody has a higher one. A majority of these makes them the holder's; the highest answer alone, written back anywhere, would
-- not (see the model).
-- KEYS     lock, state
-- ARGV     token; last fence
-- RETURNS  1 confirmed | 0 the lock is not the token's any more, or there is a higher fence, or what is none
-- SINCE    Redis 5
-- MODEL    models/quorum_fence.pml
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = redis.pcall('HGET', KEYS[2], 'fence')
if whole(last or 0, MOST) > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[2], 'fence', ARGV[2])
return 1
