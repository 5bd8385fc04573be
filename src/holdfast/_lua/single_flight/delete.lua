-- Delete a value, and void a load under way, so that its value cannot be stored; notify the waiters.
-- KEYS     value, fresh, load, state, waiters
-- ARGV     none
-- RETURNS  1 there was a value | 0 there was none
-- SINCE    Redis 5
-- MODEL    models/single_flight.pml
--
-- The first write is DEL: a script may go on writing when memory is full if its first write frees some.
-- INCLUDE  shared/_notify
local value, fresh, load, state, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local there = redis.call('EXISTS', value)
redis.call('DEL', value, fresh, load)
redis.pcall('HDEL', state, 'of:' .. load)
tell(waiters)
return there
