-- Read the records that processes write about themselves.
-- KEYS     records of processes
-- ARGV     none
-- RETURNS  the records, in order; '' if the key is missing or not a string. A record longer than 4096 bytes
--          is cut at 4097, so that the reader notices.
-- SINCE    Redis 5
-- MODEL    models/lock_handover.pml
--
-- MGET is not used: a client that may write one record could make each waiter read megabytes.
local LONGEST = 4096
local found = {}
for i, key in ipairs(KEYS) do
  local record = redis.pcall('GETRANGE', key, 0, LONGEST)
  found[i] = type(record) == 'string' and record or ''
end
return found
