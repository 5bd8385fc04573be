-- End a load without a value, and notify the waiters. The first waiter that asks will load the value.
-- KEYS     load, state, floors, floor, waiters
-- ARGV     token; 'release' | 'bury': also revoke the token; fence of the load, or '0': do not check whether it was
--          invalidated; tags that its value would have had, with a space before each
-- RETURNS  1 it was under way, and is ended | 0 it was not | STILL_VALID it was, and nothing
--          was invalidated since it began
-- SINCE    Redis 5
-- MODEL    models/single_flight.pml
--
-- The first write is DEL: a script may go on writing when memory is full if its first write frees some.
-- CODES    STILL_VALID
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
-- INCLUDE  single_flight/_values
local load, state, floors, floor, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local fence = tonumber(ARGV[3])
local holder = redis.pcall('GET', load)
local ours = holder == ARGV[1]
local same = ours and fence > 0 and whole(redis.pcall('HGET', state, 'of:' .. load)) == fence
if ours then
  redis.call('DEL', load)
  redis.pcall('HDEL', state, 'of:' .. load)
  tell(waiters)
elseif not holder then
  redis.pcall('HDEL', state, 'of:' .. load)  -- the lease has expired, and no other request would delete the field
end
if ARGV[2] == 'bury' then
  local fields = read_state(state, ARGV[1])
  if fields then
    revoke(state, fields[2], ARGV[1])
    keep_alive(state, floors, whole(fields[4]), 0, now_us())
  end
end
if same and highest_floor(load, state, floor) and not void(floors, floor, fence, ARGV[4]) then return STILL_VALID end
return ours and 1 or 0
