-- What is known of jobs of a schedule. Changes nothing.
-- KEYS     of each job: job, log, and the run of each slot
-- ARGV     slots of each; entries of the log that are wanted
-- RETURNS  {now (us), answer, ...}; an answer is {} where there is no such job, or
--          {what it is, last tick (us), 1 if paused, queued, {run, lease in ms, ...}, {entry, ...}}: the newest entry first, runs and
--          entries as in the keys, without token
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- INCLUDE  _state
local now = now_us()
local slots, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])

local function look(at)
  local job, log = KEYS[at], KEYS[at + 1]
  local fields = redis.pcall('HMGET', job, 'v', 'def', 'last', 'paused', 'queued')
  if fields.err or fields[1] ~= '1' then return {} end
  local runs, entries = {}, {}
  for i = 0, slots - 1 do
    local record = redis.call('HGET', job, 'run:' .. i)
    if record then
      local token, rest = string.match(record, '^(%S+) (.*)$')
      runs[#runs + 1] = rest
      runs[#runs + 1] = redis.pcall('GET', KEYS[at + 2 + i]) == token and redis.call('PTTL', KEYS[at + 2 + i]) or -1
    end
  end
  local ring = redis.pcall('HMGET', log, 'n', 'size')
  local n = not ring.err and tonumber(ring[1]) or 0
  for i = n - 1, math.max(0, n - wanted), -1 do
    local entry = redis.call('HGET', log, i % ring[2])
    if entry and string.match(entry, '^%d+') == integer(i) then entries[#entries + 1] = entry end
  end
  local _, queued = string.gsub(fields[5] or '', ' ', '')
  return {fields[2], tonumber(fields[3]), fields[4] and 1 or 0, queued, runs, entries}
end

local answers = {now}
for at = 1, #KEYS, slots + 2 do
  answers[#answers + 1] = look(at)
end
return answers
