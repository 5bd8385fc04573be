-- Return the state of jobs of a schedule. Changes nothing.
-- KEYS     base, serving; then of each job: job, log, and the run of each slot
-- ARGV     number of slots of each; number of entries of the log to return
-- RETURNS  {now (us), 1 if the schedule exists, {'<since (us)> <name>', ...}: the processes that serve it, answer, ...}; an answer is
--          {} if there is no such job, or {definition, last tick (us), 1 if paused, number queued, {run, lease in ms, ...},
--          {entry, ...}, origin, 1 if a process that declared it so serves it now}: the newest entry first, runs and
--          entries as in the keys, without token
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
local base, serving = KEYS[1], KEYS[2]
local now = now_us()
local now_ms = math.floor(now / 1000)
local slots, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])

local ENTRY = 65536  -- maximum length of an entry in bytes, with the output of a command

local function read_job(at)
  local job, log = KEYS[at], KEYS[at + 1]
  local fields = redis.pcall('HMGET', job, 'v', 'def', 'last', 'paused', 'queued', 'origin', 'by')
  if fields.err or fields[1] ~= '1' then return {} end
  local runs, entries = {}, {}
  for i = 0, slots - 1 do
    local record = redis.call('HGET', job, 'run:' .. i)
    if record then
      local token, rest = string.match(record, '^(%S+) (.*)$')
      runs[#runs + 1] = short(rest)
      runs[#runs + 1] = redis.pcall('GET', KEYS[at + 2 + i]) == token and redis.call('PTTL', KEYS[at + 2 + i]) or -1
    end
  end
  local ring = redis.pcall('HMGET', log, 'n', 'size')
  local n, size = whole(not ring.err and ring[1], 0), whole(not ring.err and ring[2], 1)
  for i = n - 1, math.max(0, n - wanted), -1 do
    local fits = redis.call('HSTRLEN', log, i % size) <= ENTRY
    local entry = fits and redis.call('HGET', log, i % size)
    if entry and string.match(entry, '^%d+') == integer(i) then entries[#entries + 1] = entry end
  end
  local _, queued = string.gsub(fields[5] or '', ' ', '')
  local served = 0
  for listener in string.gmatch(fields[7] or '', '%S+') do
    local deadline = redis.pcall('ZSCORE', serving, listener)
    if type(deadline) == 'string' and tonumber(deadline) > now_ms then served = 1 end
  end
  return {short(fields[2]), whole(fields[3], 0), fields[4] and 1 or 0, queued, runs, entries, short(fields[6]), served}
end

local who, exists = {}, redis.call('TYPE', base).ok == 'hash'
local line = redis.pcall('ZRANGE', serving, 0, -1, 'WITHSCORES')
for i = 1, exists and not line.err and #line or 0, 2 do
  if tonumber(line[i + 1]) > now_ms then
    local known = redis.call('HGET', base, 'who:' .. line[i])
    -- The record of a process may be deleted or lost; the process writes it again with its next request.
    known = known and string.match(known, '^%d+ ') and short(known)
    who[#who + 1] = known or integer(now) .. ' process ' .. string.match(line[i], '^[^.]*')
  end
end
local answers = {now, exists and 1 or 0, who}
for at = 3, #KEYS, slots + 2 do
  answers[#answers + 1] = read_job(at)
end
return answers
