-- Delete a value, whatever there is; what is being loaded cannot be stored any more, and who waits for it is told.
-- KEYS     value, fresh, load, state, floors, waiters
-- ARGV     none
-- RETURNS  {1} there was a value | {0} there was none | {-2, key, type} and {-3, version} as in look
-- SINCE    Redis 5
-- MODEL    models/flight.pml
--
-- The first write is DEL: a script may go on writing when memory is full if its first write frees some.
-- INCLUDE  _grant
-- INCLUDE  _state
-- INCLUDE  _tell
-- INCLUDE  _flight
local value, fresh, load, state, floors, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local LATE = 60000  -- ms for which a load is refused that has lost its lease before, and does not know it
local found = redis.pcall('GET', value)
if type(found) == 'table' then return refused(value, found) end
local fields, refusal = read_state(state, '')
if not fields then return refusal end
redis.call('DEL', value, fresh, load)
local now = now_us()
local mark = math.max(now, tonumber(fields[1]) or 0)  -- at least the last fence that was issued: what comes later is above it
redis.call('HSET', state, 'fence', mark)
redis.call('SET', value, '1 gone ' .. integer(mark) .. ' 0 ' .. LATE .. ' 0\n', 'PX', LATE)
keep_alive(state, floors, fields[4], 0, now)
tell(waiters)
return {found and parts(found) ~= 'gone' and 1 or 0}
