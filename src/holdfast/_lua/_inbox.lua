-- Shared by the scripts that tell a process something: each has an inbox, see _core/node.py.
-- MODEL    models/handover.pml
local SHARDED = 27  -- characters of a channel of sharded pub/sub, which is in a slot of this server: see _wire/slots.py

local function publish(inbox, message)
  if #inbox == SHARDED then return redis.pcall('SPUBLISH', inbox, message) end
  return redis.pcall('PUBLISH', inbox, message)
end
