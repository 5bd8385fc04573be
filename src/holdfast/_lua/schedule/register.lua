-- Register jobs of a schedule. The newest definition counts. Ticks of a new job or timetable count from its registration.
-- KEYS     base, serving, jobs; then of each job: job
-- ARGV     listener id; number of this registration, which rises, but not when it is sent again; ms for which the process can
--          be notified from now on; its name;
--          '' | 'strict': nothing is done if a process serves other code under the name of one of these jobs | 'look': only
--          check this, and write nothing; number of jobs; of each: name; definition; timetable; origin: name of the
--          code that it runs
-- RETURNS  {now (us), answer, ...}; an answer is {1, revision, last tick (us), former definition if it was another one, or '',
--          another origin that a process serves, or '', that process}
--          {REDEFINED, revision, definition, last tick, origin} | {NO_JOB}: this registration was carried out before, and the job
--          was changed or removed since; nothing was done
--          WRONG_TYPE, OTHER_FORMAT, SERVER_ERROR and NO_NUMBER as in `codes`: nothing was done to this job
--          {OTHER_CODE, index of the job, its other origin, process that serves that}: refused
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- CODES    OTHER_FORMAT SERVER_ERROR OTHER_CODE NO_JOB REDEFINED
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  schedule/_job
local base, serving, jobs = KEYS[1], KEYS[2], KEYS[3]
local listener, number, host, mode = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5]
local now = now_us()
local now_ms = math.floor(now / 1000)
local known = redis.call('HMGET', base, 'changes', 'v', 'who:' .. listener, 'reg:' .. listener)
if known[2] and known[2] ~= '1' then return {now, {OTHER_FORMAT, short(known[2])}} end
local again = number <= whole(known[4], 0)
redis.call('ZCARD', jobs)
local line = redis.pcall('ZCARD', serving)
if type(line) == 'table' then return {now, refused(serving, line)} end
local news = false
local BY = 30  -- maximum number of processes of one origin that are stored for a job

-- Return those of these processes that serve the schedule now, without the one that asks.
local function alive(by)
  local found = {}
  for other in string.gmatch(by or '', '%S+') do
    local deadline = other ~= listener and redis.call('ZSCORE', serving, other)
    if deadline and tonumber(deadline) > now_ms then found[#found + 1] = other end
  end
  return found
end

-- Return another origin under which a process serves this job now, and that process's name; nil if there is none.
local function rival(job, origin)
  local fields = redis.pcall('HMGET', job, 'origin', 'by')
  if fields.err or not fields[1] or fields[1] == origin then return nil end
  local others = alive(fields[2])
  if #others == 0 then return nil end
  local who = redis.call('HGET', base, 'who:' .. others[1])
  return short(fields[1]), short(who and string.match(who, '^%d+ (.*)$'))
end

local function register(job, name, def, when, origin)
  local fields = redis.pcall('HMGET', job, 'v', 'def', 'rev', 'last', 'when', 'origin', 'by')
  if fields.err then return refused(job, fields) end
  if fields[1] and fields[1] ~= '1' then return {OTHER_FORMAT, short(fields[1])} end
  if not whole(fields[3] or 0) then return no_number(job, 'rev', fields[3]) end
  if not whole(fields[4] or 0) then return no_number(job, 'last', fields[4]) end
  local rev, last, before = whole(fields[3], 0), fields[4] and set_right(fields[4], now), ''
  if again then  -- if it were carried out twice, it could bring back a definition that another process has replaced since
    if not last then return {NO_JOB} end
    if fields[2] == def and fields[6] == origin then return {1, rev, tonumber(last), '', '', ''} end
    return {REDEFINED, rev, short(fields[2]), tonumber(last), short(fields[6])}
  end
  local other, who = rival(job, origin)
  local by = {listener}
  if fields[6] == origin then
    for i, process in ipairs(alive(fields[7])) do
      if i < BY then by[i + 1] = process end
    end
  end
  if fields[2] ~= def or fields[6] ~= origin or rev == 0 or not last then  -- or another program has deleted the field
    before, news = fields[2] ~= def and short(fields[2]) or '', true
    rev = integer(math.max(now, rev + 1))
    if not last or (fields[5] ~= when and tonumber(last) < now) then last = integer(now) end
    redis.call('HSET', job, 'v', '1', 'def', def, 'rev', rev, 'last', last, 'when', when, 'origin', origin)
  end
  redis.call('HSET', job, 'by', table.concat(by, ' '))
  redis.call('PEXPIRE', job, KEEP_JOB)
  redis.call('ZADD', jobs, 'NX', now, name)
  return {1, tonumber(rev), tonumber(last), before, other or '', who or ''}
end

local answers = {now}
if mode ~= '' then
  for i = 4, #KEYS do
    local other, who = rival(KEYS[i], ARGV[4 * (i - 4) + 10])
    if other then return {now, {OTHER_CODE, i - 4, other, who}} end
  end
end
if mode == 'look' then return answers end
redis.call('HSET', base, 'v', '1', 'reg:' .. listener, integer(math.max(number, whole(known[4], 0))))
redis.call('ZADD', serving, now_ms + ARGV[3], listener)
if not known[3] then record_runner(base, listener, host, now) end
for i = 4, #KEYS do
  local a = 4 * (i - 4) + 6
  local answer = register(KEYS[i], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
  answers[#answers + 1] = answer.err and {SERVER_ERROR, answer.err} or answer
end
if news then changed(base, known[1]) end
redis.call('PEXPIRE', jobs, KEEP_JOB)
stay(base, serving)
if news then tell_runners(base, serving, now_ms, listener) end
return answers
