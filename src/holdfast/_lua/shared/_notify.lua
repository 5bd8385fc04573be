-- Shared by the scripts that end a load: who wants to know of it is told.
--
-- waiters (zset):  id of who wants to be told -> until when (server ms)
-- MODEL            models/flight.pml
-- INCLUDE  shared/_inbox
-- There is something to look at, for all who wait for that: each of them looks, and what it finds decides who does what.
local function tell(waiters)
  for _, hope in ipairs(redis.pcall('ZRANGE', waiters, 0, -1)) do  -- none, where the key holds something else
    publish(inbox_of(waiters, hope), '3 ' .. hope)
  end
  redis.call('DEL', waiters)
end
