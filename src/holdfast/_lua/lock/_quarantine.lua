-- For the scripts of a lock on one server: whether the server grants it, if it has guard=. The marker is the last of KEYS then, the
-- longest lease (ms) the last of ARGV. A free lock that is not granted is answered as one that is held, by process 'guard', for as
-- long as that goes on: so all stand in line meanwhile. Stands behind _state; `now` is the time.
-- MODEL           models/amnesia.pml
local pause, denied  -- ms for which nothing is granted; what is answered instead of anything
if #KEYS % 3 == 1 then
-- INCLUDE  shared/_marker
  local _, answer = quarantine(KEYS[#KEYS], tonumber(ARGV[#ARGV]), '', now)
  if answer and answer[1] == -5 then pause = answer[2] else denied = answer end
  if answer and answer[1] == -6 then
    denied = {err = 'ERR the users of this server have agreed on guard=' .. answer[2] / 1000 .. ': say the same'}
  elseif answer and answer[1] == -7 then
    denied = {err = 'ERR key ' .. KEYS[#KEYS] .. ' is not that of guard=: delete it if nobody uses it'}
  end
end
