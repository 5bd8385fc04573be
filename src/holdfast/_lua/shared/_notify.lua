-- Shared by the scripts that notify waiters of a change.
--
-- waiters (zset):  id of a listener -> end of its subscription (server ms)
-- MODEL    models/single_flight.pml
-- CODES    CHANGED
-- INCLUDE  shared/_inbox

-- Notify one listener of a change, and return the reply of PUBLISH. The listener then asks the server, and the answer decides
-- what it does. `key`: any of the keys that the listener watches; the prefix is read from it.
local function notify(key, listener)
  return publish(inbox_of(key, listener), CHANGED .. ' ' .. listener)
end

-- Notify all listeners in a sorted set, and delete the set.
local function tell(waiters)
  for _, listener in ipairs(redis.pcall('ZRANGE', waiters, 0, -1)) do notify(waiters, listener) end  -- nothing, if the key has another type
  redis.call('DEL', waiters)
end
