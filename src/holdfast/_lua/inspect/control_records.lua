-- Read what processes say about themselves.
-- KEYS     records of processes
-- ARGV     none
-- RETURNS  the records, in order; '' where there is none, or something that is not a string. One that is longer than 4096 bytes
--          is cut at 4097, so that the reader sees that it is too long.
-- SINCE    Redis 5
-- MODEL    models/handover.pml
--
-- Not MGET: anybody who may write one record could have each waiter read as many megabytes as the server can store.
local LONGEST = 4096
local found = {}
for i, key in ipairs(KEYS) do
  local record = redis.pcall('GETRANGE', key, 0, LONGEST)
  found[i] = type(record) == 'string' and record or ''
end
return found
