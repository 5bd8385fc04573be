-- Shared by the scripts that tell a process something: each has an inbox, see _core/node.py.
-- MODEL    models/handover.pml
local SHARDED = 27  -- characters of a channel of sharded pub/sub, which is in a slot of this server: see _wire/slots.py

-- Whether anybody listens on this server. Asked before anything is published: replicas pass it on to those who listen there,
-- whom PUBLISH does not count; one of them would believe what it is told, and have been passed over.
local function listens(inbox)
  local count = #inbox == SHARDED and redis.pcall('PUBSUB', 'SHARDNUMSUB', inbox) or redis.pcall('PUBSUB', 'NUMSUB', inbox)
  return count.err or count[2] > 0
end

local function publish(inbox, message)
  if #inbox == SHARDED then return redis.pcall('SPUBLISH', inbox, message) end
  return redis.pcall('PUBLISH', inbox, message)
end
