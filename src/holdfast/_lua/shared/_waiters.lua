-- Shared by the scripts of locks and of permits: the queue of waiters.
--
-- queue (zset):  token -> arrival (server us). It contains a token if and only if the state has the token's at: field.
-- MODEL    models/lock_handover.pml
-- INCLUDE  shared/_inbox
local PLACE = 3000  -- ms for which a place lasts after its last refresh: three refresh intervals

local function leave(state, queue, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', state, 'at:' .. token, 'as:' .. token)
end

-- Return whether a process listens on this server. This is checked before a message is published. PUBLISH does not count
-- subscribers on replicas, but replicas deliver the message to them, too. A waiter there would be passed over, because nobody
-- was counted, and would still believe the message.
local function listens(inbox)
  local count = is_sharded(inbox) and redis.pcall('PUBSUB', 'SHARDNUMSUB', inbox) or redis.pcall('PUBSUB', 'NUMSUB', inbox)
  return count.err or count[2] > 0
end
