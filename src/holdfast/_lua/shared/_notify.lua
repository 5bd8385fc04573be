-- Shared by the scripts that change what others wait for: who wants to know of it is told.
--
-- waiters (zset):  id of who wants to be told -> until when (server ms)
-- MODEL    models/flight.pml
-- CODES    CHANGED
-- INCLUDE  shared/_inbox

-- There is something to look at, for who listens under this id: it looks, and what it finds decides what it does. `key`: one of
-- those that it looks at. Answers as PUBLISH.
local function notify(key, hope)
  return publish(inbox_of(key, hope), CHANGED .. ' ' .. hope)
end

-- The same, for all who wait for it.
local function tell(waiters)
  for _, hope in ipairs(redis.pcall('ZRANGE', waiters, 0, -1)) do notify(waiters, hope) end  -- none, where it is something else
  redis.call('DEL', waiters)
end
