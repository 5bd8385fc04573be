-- Shared by the scripts that grant nothing on a server which may have forgotten what it granted: the delayed restart of
-- Redlock, made automatic. A lease that was forgotten has ended by then.
--
-- marker (hash, without expiry):  run = run id of the server, since = when it began to count that time (server ms; 0: it was
--                declared new), lease = the longest lease (ms), servers = digest of the servers that vote together, if any
-- MODEL    models/amnesia.pml
-- CODES    QUARANTINED OTHER_LEASE OTHER_SERVERS
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state

local function run_id()
  local info = redis.call('INFO', 'server')
  local _, at = string.find(info, 'run_id:', 1, true)  -- plain text, as a pattern takes twice the time
  return string.sub(info, at + 1, at + 40)
end

-- The server's run id, and what it answers instead of a grant; nil if it may grant. A restart, a flushed or replaced data set
-- and a promoted replica all show here, whatever happened to the caller's connection.
local function quarantine(marker, longest, servers, now)
  local run = run_id()
  local fields = redis.pcall('HMGET', marker, 'run', 'since', 'lease', 'servers')
  if fields.err then return run, refused(marker, fields) end
  local lease, since = whole(fields[3] or longest), whole(fields[2])
  if not lease then return run, no_number(marker, 'lease', fields[3]) end
  if lease ~= longest then return run, {OTHER_LEASE, lease} end
  if fields[4] and fields[4] ~= servers then return run, {OTHER_SERVERS, short(fields[4])} end
  local now_ms = math.floor(now / 1000)
  if fields[1] ~= run or not since or since > now_ms then
    since = now_ms
    redis.call('HSET', marker, 'run', run, 'since', since, 'lease', longest, 'servers', servers)
  end
  local left = since + math.ceil(longest * 1.01) + 2 - now_ms
  if left > 0 then return run, {QUARANTINED, left} end
  return run, nil
end
