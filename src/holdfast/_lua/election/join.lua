-- A candidate says under which name it stands in line.
-- KEYS     state
-- ARGV     token; name
-- RETURNS  1 | 0 it has no place in line: nothing was written
-- SINCE    Redis 5
-- MODEL    models/election.pml
local state, token = KEYS[1], ARGV[1]
if type(redis.pcall('HGET', state, 'at:' .. token)) ~= 'string' then return 0 end
redis.call('HSET', state, 'as:' .. token, ARGV[2])
return 1
