-- Proclaim the holder of an election's lock as its leader, and notify all observers.
-- KEYS     lock, state, queue, observers
-- ARGV     token; least lease in ms from now on, or '0': unchanged; term; name; value
-- RETURNS  {1} it leads | {0} the token does not hold the lock (any more): nothing was written
--          {WRONG_TYPE, key, type}            the key has other data; nothing was written
--          {OTHER_FORMAT, version}            written by an incompatible release
-- SINCE    Redis 5
-- MODEL    models/election.pml
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  shared/_notify
local lock, state, queue, observers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, term = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields, refusal = read_state(state, token)
if not fields then return refusal end
local listed = redis.pcall('ZCARD', observers)
if type(listed) == 'table' then return refused(observers, listed) end
if holder ~= token then return {0} end

keep_alive(state, queue, fields[4], ttl, now_us())
if not fields[1] then redis.call('HSET', state, 'fence', term + BLOCK - 1) end  -- the state was lost; only the term is known
redis.call('HSET', state, 'leader', token, 'term', term, 'name', ARGV[4], 'value', ARGV[5])
if ttl > 0 then extend(lock, ttl) end
tell(observers)
return {1}
