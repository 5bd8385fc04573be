-- Shared by the scripts of a lock and of permits: who stands in line.
--
-- queue (zset):  token -> arrival (server us). A token is here if and only if state has its at: field.
-- MODEL    models/handover.pml
-- INCLUDE  shared/_inbox
local PLACE = 3000  -- ms a place counts after the last sign of life: three refreshes

local function leave(state, queue, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', state, 'at:' .. token, 'as:' .. token)
end

-- Whether anybody listens on this server. Asked before anything is published: replicas pass it on to those who listen there,
-- whom PUBLISH does not count; one of them would believe what it is told, and have been passed over.
local function listens(inbox)
  local count = is_sharded(inbox) and redis.pcall('PUBSUB', 'SHARDNUMSUB', inbox) or redis.pcall('PUBSUB', 'NUMSUB', inbox)
  return count.err or count[2] > 0
end
