-- Make jobs of a schedule known. The newest word counts; a job, and a timetable, begin when they are first heard of.
-- KEYS     base, serving, jobs; then of each job: job
-- ARGV     number of jobs; of each: its name; what it is; its timetable
-- RETURNS  {now (us), answer, ...}; an answer is {1, revision, last tick (us), what it was before if that was something else, or ''}
--          {-2, key, type} {-3, version} {-4, message}: not ours, nothing was done to it
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- INCLUDE  _grant
-- INCLUDE  _state
-- INCLUDE  _inbox
-- INCLUDE  _job
local base, serving, jobs = KEYS[1], KEYS[2], KEYS[3]
local now = now_us()
local known = redis.call('HMGET', base, 'changes', 'v')
if known[2] and known[2] ~= '1' then return {now, {-3, known[2]}} end
redis.call('ZCARD', jobs)
local news = false

local function register(job, name, def, when)
  local fields = redis.pcall('HMGET', job, 'v', 'def', 'rev', 'last', 'when')
  if fields.err then return refused(job, fields) end
  if fields[1] and fields[1] ~= '1' then return {-3, fields[1]} end
  local rev, last, before = fields[3], fields[4], ''
  if fields[2] ~= def then
    before, news = fields[2] or '', true
    rev = integer(math.max(now, (tonumber(rev) or 0) + 1))
    if not last or (fields[5] ~= when and tonumber(last) < now) then last = integer(now) end
    redis.call('HSET', job, 'v', '1', 'def', def, 'rev', rev, 'last', last, 'when', when)
  end
  redis.call('PEXPIRE', job, KEEP_JOB)
  redis.call('ZADD', jobs, 'NX', now, name)
  return {1, tonumber(rev), tonumber(last), before}
end

local answers = {now}
for i = 4, #KEYS do
  local a = 3 * (i - 4) + 1
  local answer = register(KEYS[i], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
  answers[#answers + 1] = answer.err and {-4, answer.err} or answer
end
if news then changed(base, known[1]) end
redis.call('PEXPIRE', jobs, KEEP_JOB)
stay(base, serving)
if news then tell(base, serving, math.floor(now / 1000), '') end
return answers
