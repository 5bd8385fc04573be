-- Grant the load of a key to a caller that already has the value, whatever is stored and whoever loads it. The caller then runs
-- `store`.
-- KEYS     load, state, floors
-- ARGV     token, for the load; its lease in ms
-- RETURNS  {LEASED, fence} the same again for the same token
--          {NO_CLAIM} this token was revoked: the request is a late copy of an abandoned one
--          WRONG_TYPE and OTHER_FORMAT as in get_or_lease
-- SINCE    Redis 5
-- MODEL    models/single_flight.pml
--
-- Another caller that loads the key loses its lease. Its waiters are notified when the value is stored; if this caller dies
-- before that, they ask again when the lost lease would have ended.
-- CODES    LEASED NO_CLAIM
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  single_flight/_lease
local load, state, floors = KEYS[1], KEYS[2], KEYS[3]
local token, lease = ARGV[1], tonumber(ARGV[2])

local holder = redis.pcall('GET', load)
if type(holder) == 'table' then return refused(load, holder) end
local fields, refusal = read_state(state, token)
if not fields then return refusal end
if fields[2] and string.find(fields[2], token, 1, true) then return {NO_CLAIM} end
local now = now_us()
keep_alive(state, floors, whole(fields[4]), lease, now)
return {LEASED, lease_to(load, state, token, lease, now, whole(fields[1]), holder == token)}
