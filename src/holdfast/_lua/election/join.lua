-- Record the name of a candidate that waits in the queue of an election's lock.
-- KEYS     state
-- ARGV     token; name
-- RETURNS  1 recorded | 0 the token has no place in the queue: nothing was written
-- SINCE    Redis 5
-- MODEL    models/election.pml
local state, token = KEYS[1], ARGV[1]
if type(redis.pcall('HGET', state, 'at:' .. token)) ~= 'string' then return 0 end
redis.call('HSET', state, 'as:' .. token, ARGV[2])
return 1
