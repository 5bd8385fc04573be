-- Shared by the scripts that grant nothing on a server that may have lost its data (quarantine). This is the delayed restart
-- of Redlock, made automatic: by the end of the quarantine, every lost lease has expired.
--
-- marker (hash, without expiry):  run = run id of the server, since = start of its quarantine (server ms; 0: it was
--                declared new), lease = the longest lease (ms), servers = digest of the servers that vote together, if any
-- MODEL    models/quorum_amnesia.pml
-- CODES    QUARANTINED OTHER_LEASE OTHER_SERVERS
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state

local function run_id()
  local info = redis.call('INFO', 'server')
  local _, at = string.find(info, 'run_id:', 1, true)  -- a plain search, because a pattern takes twice the time
  return string.sub(info, at + 1, at + 40)
end

-- Return the ms until the end of a quarantine that began at `since` (server ms); 0 or less: it is over.
local function ends_in(since, longest, now_ms)
  return since + math.ceil(longest * 1.01) + 2 - now_ms
end

-- Return the server's run id, and the reply that refuses a grant; nil if the server may grant. A restart, a flushed or
-- replaced data set and a promoted replica are all noticed, whatever happened to the caller's connection.
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
  local left = ends_in(since, longest, now_ms)
  if left > 0 then return run, {QUARANTINED, left} end
  return run, nil
end
