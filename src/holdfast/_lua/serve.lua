-- What one process has to say and to ask about jobs of a schedule: runs that have ended, ticks that are due, and whether there
-- is something for it to run. A tick belongs to the first who claims it; the clocks of processes do not matter.
-- KEYS     base, serving; then of each job: job, log, and of each of its slots: run, state, queue (which is never there)
-- ARGV     hope; number of this request, higher than those before; until when it counts (server ms); for how long the process
--          can be told something from now on (ms); its name; then of each job:
--          slots; revision; '<overlap> <1: again after a crash> <keep ms> <ttl ms> <entries of the log>';
--          slot of a run that has ended, or ''; its token; '<status>', 'again': it was cut short, and is to begin again elsewhere |
--          'back': it never began; text for the log;
--          last tick known, or '': nothing is due; '<first> <last> <count>' of ticks that are too late to be run, or '';
--          the others '<us> <us> ...'; token for a run, or '' if it can run nothing now
-- RETURNS  {1, now (us), changes, answer, ...} | {0, now}: a late copy of a request, nothing was done. An answer is
--          {1, last tick, lease of the run in ms (-1: none), queued, fences to be ended, 1 if the end was taken down,
--           ms until the first tick that is early or 0, slot or -1, fence, scheduled, attempt, 1: by hand}
--          {2, revision, what the job is, last tick}: it was changed; an end was taken down all the same
--          {-1}: there is no such job | {-2, key, type} {-3, version} {-4, message}: not a schedule of ours, nothing was done to it
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- INCLUDE  _grant
-- INCLUDE  _state
-- INCLUDE  _inbox
-- INCLUDE  _job
local base, serving = KEYS[1], KEYS[2]
local hope, number, host = ARGV[1], tonumber(ARGV[2]), ARGV[5]
local now = now_us()
local now_ms = math.floor(now / 1000)
local known = redis.call('HMGET', base, 'seq:' .. hope, 'changes', 'v')
if known[3] and known[3] ~= '1' then return {-3, known[3]} end
if now_ms > tonumber(ARGV[3]) or number <= tonumber(known[1] or 0) then return {0, now} end
local line = redis.pcall('ZCARD', serving)
if type(line) == 'table' then return refused(serving, line) end
redis.call('HSET', base, 'v', '1', 'seq:' .. hope, integer(number))
redis.call('ZADD', serving, now_ms + ARGV[4], hope)
stay(base, serving)
if number == 1 then forget(base, serving, now_ms) end
local notify = false

-- The runs of a job: of each slot its keys, who has the lease, and what is written down about the run.
local function slots_of(at, count, job)
  local slots = {}
  for i = 0, count - 1 do
    local run = KEYS[at + 2 + 3 * i]
    local holder = redis.pcall('GET', run)
    if type(holder) == 'table' then return nil, refused(run, holder) end
    local record = redis.call('HGET', job, 'run:' .. i)
    local slot = {run = run, state = KEYS[at + 3 + 3 * i], queue = KEYS[at + 4 + 3 * i], holder = holder}
    if record then
      slot.token, slot.scheduled, slot.attempt, slot.started, slot.fence, slot.kind, slot.host =
        string.match(record, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%S) (.*)$')
    end
    slots[i] = slot
  end
  return slots
end

local function serve(at, a, count)
  local job, log = KEYS[at], KEYS[at + 1]
  local overlap, again, keep, ttl, size = string.match(ARGV[a + 2], '^(%S+) (%d) (%d+) (%d+) (%d+)$')
  keep, ttl, size = tonumber(keep), tonumber(ttl), tonumber(size)
  local fields = redis.pcall('HMGET', job, 'v', 'rev', 'last', 'paused', 'fence', 'queued', 'cancel', 'def', 'resumed')
  if fields.err then return refused(job, fields) end
  if not fields[3] then return {-1} end
  if fields[1] ~= '1' then return {-3, fields[1] or ''} end
  local entries = redis.pcall('HGET', log, 'n')
  if type(entries) == 'table' then return refused(log, entries) end
  local slots, refusal = slots_of(at, count, job)
  if not slots then return refusal end
  local last, paused, queued, cancel = fields[3], fields[4], fields[6] or '', fields[7] or ''
  local resumed = tonumber(fields[9] or 0)
  local wanted, early, taken_down, left_over = ARGV[a + 10], 0, 0, false
  redis.call('PEXPIRE', job, KEEP_JOB)
  redis.call('PEXPIRE', log, KEEP_JOB)

  -- Written down of a run: its record in the log; the job has it no more.
  local function close(i, status, text)
    local slot = slots[i]
    if status ~= 'back' then
      local word = status == 'again' and 'cancelled' or status
      write(log, size, word, slot.scheduled, 1, slot.scheduled, slot.started .. ' ' .. integer(now) .. ' ' .. slot.attempt .. ' '
        .. slot.fence .. '\n' .. slot.host .. '\n' .. text)
    end
    local attempt = tonumber(slot.attempt)
    if status == 'back' then
      queued = slot.scheduled .. '/' .. slot.attempt .. '/' .. slot.kind .. ' ' .. queued
    elseif status == 'again' or (status == 'crashed' and again == '1' and attempt < ATTEMPTS) then
      queued = slot.scheduled .. '/' .. attempt + 1 .. '/' .. slot.kind .. ' ' .. queued
    end
    redis.call('HDEL', job, 'run:' .. i)
    slot.token = nil
    left_over = true
  end

  local function lease_left()
    for i = 0, count - 1 do
      if slots[i].holder then return redis.call('PTTL', slots[i].run) end
    end
    return -1
  end

  -- An end, unless it was taken down before, or somebody has noticed that the lease had run out.
  local ended = tonumber(ARGV[a + 3])
  local slot = ended and slots[ended]
  if slot and slot.token == ARGV[a + 4] then
    local rest = math.floor(keep - (now - slot.started) / 1000)
    if slot.holder == slot.token then
      if rest > 0 and (ARGV[a + 5] ~= 'back' and ARGV[a + 5] ~= 'again') then
        redis.call('PEXPIRE', slot.run, rest)
      else
        redis.call('DEL', slot.run)
        slot.holder = false
      end
    end
    close(ended, ARGV[a + 5], ARGV[a + 6])
    taken_down = 1
  end
  for i = 0, count - 1 do
    if slots[i].token and slots[i].token ~= slots[i].holder then close(i, 'crashed', '') end
  end
  if fields[2] ~= ARGV[a + 1] then
    redis.call('HSET', job, 'queued', queued)
    return {2, tonumber(fields[2]), fields[8], tonumber(last)}
  end

  local running, held, free = 0, 0, nil
  for i = count - 1, 0, -1 do
    if slots[i].token then running = running + 1 end
    if slots[i].holder then held = held + 1 else free = i end
  end
  if held > 0 and overlap ~= 'allow' then free = nil end  -- more slots than one: it was allowed before
  if cancel ~= '' and running == 0 then
    redis.call('HDEL', job, 'cancel')
    cancel = ''
  end

  -- What is due, if nobody has dealt with it before.
  local function skip(status, from, ticks, to, why)
    write(log, size, status, from, ticks, to, '0 0 0 0\n\n' .. why)
  end
  if ARGV[a + 7] == last then
    local from, to, ticks = string.match(ARGV[a + 8], '^(%d+) (%d+) (%d+)$')
    if from and tonumber(to) <= now then
      local asleep = paused or tonumber(to) <= resumed
      skip(asleep and 'skipped' or 'missed', from, tonumber(ticks), to, asleep and 'paused' or 'too late')
      last = to
    end
    local blocked = overlap == 'skip' and (not free or queued ~= '')
    local _, waiting = string.gsub(queued, ' ', '')
    for tick in string.gmatch(ARGV[a + 9], '%d+') do
      if tonumber(tick) > now then
        early = math.ceil((tick - now) / 1000)
        break
      end
      if paused or tonumber(tick) <= resumed then
        skip('skipped', tick, 1, tick, 'paused')
      elseif blocked then
        skip('skipped', tick, 1, tick, 'it was running still')
      elseif waiting >= QUEUE then
        skip('skipped', tick, 1, tick, 'the queue was full')
      else
        queued, waiting = queued .. tick .. '/1/t ', waiting + 1
      end
      last = tick
    end
  end

  -- What is to run, if there is room. The same token asks for the same run.
  local granted = -1
  for i = 0, count - 1 do
    if slots[i].token and slots[i].token == wanted then
      granted = i
      redis.call('PEXPIRE', slots[i].run, ttl)
    end
  end
  local scheduled, attempt, kind, rest = string.match(queued, '^(%d+)/(%d+)/(%a) (.*)$')
  local ready = free and scheduled and (kind == 'h' or not paused)
  if granted == -1 and ready and wanted ~= '' then
    local slot = slots[free]
    local fence, upto = take(slot.run, slot.state, wanted, ttl, now, fields[5])
    keep_alive(slot.state, slot.queue, nil, ttl, now)
    slot.token, slot.holder, slot.fence, slot.scheduled, slot.attempt, slot.kind =
      wanted, wanted, integer(fence), scheduled, attempt, kind
    redis.call('HSET', job, 'fence', integer(upto), 'run:' .. free, wanted .. ' ' .. scheduled .. ' ' .. attempt .. ' '
      .. integer(now) .. ' ' .. integer(fence) .. ' ' .. kind .. ' ' .. host)
    queued, granted = rest, free
  elseif ready and left_over then  -- who asks runs no more; but somebody may
    notify = true
  end
  redis.call('HSET', job, 'queued', queued, 'last', last)

  local _, waiting = string.gsub(queued, ' ', '')
  local mine = slots[granted] or {fence = 0, scheduled = 0, attempt = 0}
  return {1, tonumber(last), lease_left(), waiting, cancel, taken_down, early, granted, tonumber(mine.fence),
    tonumber(mine.scheduled), tonumber(mine.attempt), mine.kind == 'h' and 1 or 0}
end

local answers, at, a = {1, now, tonumber(known[2] or 0)}, 3, 6
while at <= #KEYS do
  local count = tonumber(ARGV[a])
  local answer = serve(at, a, count)
  answers[#answers + 1] = answer.err and {-4, answer.err} or answer
  at, a = at + 2 + 3 * count, a + 11
end
if notify then
  changed(base, known[2])
  tell(base, serving, now_ms, hope)
end
return answers
