-- For the scripts of a lock on one server that has quarantine=: whether the server grants it. Included where only these get.
-- MODEL    models/amnesia.pml
-- CODES    QUARANTINED OTHER_LEASE OTHER_SERVERS
-- INCLUDE  shared/_marker

-- For how many ms nothing is granted, or nil; and what is answered instead of anything, or nil. A free lock that is not granted is
-- answered as one that is held, by process 'guard', for as long as that goes on: so all stand in line meanwhile. `marker`: its
-- key. `longest`: the longest lease (ms). `now`: server us.
local function lock_quarantine(marker, longest, now)
  local _, answer = quarantine(marker, longest, '', now)
  if not answer then return nil, nil end
  if answer[1] == QUARANTINED then return answer[2], nil end
  if answer[1] == OTHER_LEASE then
    return nil, {err = 'ERR the users of this server have agreed on quarantine=' .. answer[2] / 1000 .. ': pass the same'}
  elseif answer[1] == OTHER_SERVERS then
    return nil, {err = 'ERR key ' .. marker .. ' is not that of quarantine=: delete it if nobody uses it'}
  end
  return nil, answer
end
