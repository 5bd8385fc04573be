-- Proclaim the holder of an election's lock: it leads from now on, and all observers are notified.
-- KEYS     lock, state, queue, observers
-- ARGV     token; ms of lease from now on, at least, or '0': as before; term; name; value
-- RETURNS  {1} it leads | {0} the lock is not its own (any more): nothing was written
--          {WRONG_TYPE, key, type}            somebody's data is in the way; nothing was written
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
if not fields[1] then redis.call('HSET', state, 'fence', term + BLOCK - 1) end  -- the state was lost: so much is known of it
redis.call('HSET', state, 'leader', token, 'term', term, 'name', ARGV[4], 'value', ARGV[5])
if ttl > 0 then extend(lock, ttl) end
tell(observers)
return {1}
