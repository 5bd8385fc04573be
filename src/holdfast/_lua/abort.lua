-- End a load without a value: who waits is told, and the first of them to look loads.
-- KEYS     load, state, floors, waiters
-- ARGV     token; 'release' | 'bury': and refuse this token from now on
-- RETURNS  1 it was under way, and is not any more | 0 it was not
-- SINCE    Redis 5
-- MODEL    models/flight.pml
--
-- The first write is DEL: a script may go on writing when memory is full if its first write frees some.
-- INCLUDE  _grant
-- INCLUDE  _state
-- INCLUDE  _tell
-- INCLUDE  _flight
local load, state, floors, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder = redis.pcall('GET', load)
local ours = holder == ARGV[1]
if ours then
  redis.call('DEL', load)
  redis.pcall('HDEL', state, 'of:' .. load)
  tell(waiters)
elseif not holder then
  redis.pcall('HDEL', state, 'of:' .. load)  -- its lease has ended: nobody else would
end
if ARGV[2] == 'bury' then
  local fields = read_state(state, ARGV[1])
  if fields then
    bury(state, fields[2], ARGV[1])
    keep_alive(state, floors, fields[4], 0, now_us())
  end
end
return ours and 1 or 0
