-- For locks with quarantine= on one server: decide whether the server may grant the lock.
-- MODEL    models/quorum_amnesia.pml
-- CODES    QUARANTINED OTHER_LEASE OTHER_SERVERS
-- INCLUDE  shared/_marker

-- Return two values, each of which may be nil: the ms for which nothing is granted, and a reply that replaces all others. In a
-- quarantine a free lock is reported as held by process 'guard' until the end, so that waiters join the queue.
-- `marker`: its key. `longest`: the longest lease (ms). `now`: server time (us).
local function lock_quarantine(marker, longest, now)
  local _, answer = quarantine(marker, longest, '', now)
  if not answer then return nil, nil end
  if answer[1] == QUARANTINED then return answer[2], nil end
  if answer[1] == OTHER_LEASE then
    return nil, {err = 'ERR the clients of this server have agreed on quarantine=' .. answer[2] / 1000 .. ': pass the same'}
  elseif answer[1] == OTHER_SERVERS then
    return nil, {err = 'ERR key ' .. marker .. ' is not the marker of quarantine=: delete it if no client uses it'}
  end
  return nil, answer
end
