-- Report and claim for jobs of a schedule: a process reports runs that have ended and ticks that are due, and asks whether
-- there is a run for it. The first process that claims a tick gets it; the clocks of processes do not matter.
-- KEYS     base, serving; then of each job: job, log, and of each of its slots: run, state, queue (a key that never exists)
-- ARGV     listener id; number of this request, which rises; end of its validity (server ms); ms for which the process
--          can be notified from now on; its name; then of each job:
--          number of slots; revision; '<overlap> <misfire> <grace ms> <1: again after a crash> <keep ms> <ttl ms> <log size>';
--          slot of a run that has ended, or ''; its token; '<status>', 'again': it was cut short, and has to begin again elsewhere |
--          'back': it never began; text for the log;
--          last tick known, or '': nothing is claimed; then, in order of time: '<first> <last> <count>' of ticks that are not
--          run, because later ones are due, or ''; '<us> <us> ...': those that may run, and those that are not due yet, so that
--          the script knows the latest tick even if the request was long on its way; the tick after them, or '': there
--          is none; token for a run, or '' if the process has no room now
-- RETURNS  {1, now (us), changes, answer, ...} | {0, now}: the request was too late, or a newer one came first; nothing was
--          done. An answer is
--          {1, last tick, lease of the run in ms (-1: none), number queued, fences to be ended, 1 if the end was recorded,
--           slot or -1, fence, scheduled, attempt, 1: by hand}
--          {REDEFINED, revision, definition, last tick, origin}: the job was changed; an end was recorded all the same
--          {NO_JOB}: no such job | WRONG_TYPE, OTHER_FORMAT, SERVER_ERROR and NO_NUMBER as in `codes`:
--          nothing was done to this job
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- CODES    OTHER_FORMAT SERVER_ERROR NO_JOB REDEFINED
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  schedule/_job
local base, serving = KEYS[1], KEYS[2]
local listener, number, host = ARGV[1], tonumber(ARGV[2]), ARGV[5]
local now = now_us()
local now_ms = math.floor(now / 1000)
local known = redis.call('HMGET', base, 'seq:' .. listener, 'changes', 'v', 'who:' .. listener)
if known[3] and known[3] ~= '1' then return {OTHER_FORMAT, short(known[3])} end
local before = whole(known[1] or 0)
if not before then return no_number(base, 'seq:' .. listener, known[1]) end
if now_ms > tonumber(ARGV[3]) or number <= before then return {0, now} end
local line = redis.pcall('ZCARD', serving)
if type(line) == 'table' then return refused(serving, line) end
redis.call('HSET', base, 'v', '1', 'seq:' .. listener, integer(number))
redis.call('ZADD', serving, now_ms + ARGV[4], listener)
if not known[4] then record_runner(base, listener, host, now) end
stay(base, serving)
if number == 1 then forget(base, serving, now_ms) end
local notify = false
local TOO_LATE = 'it was later than its grace'
local OVERTAKEN = 'a later tick was due, too'

-- Return whether a waiting run is the first attempt of a tick; others are later attempts, or were started by hand.
local function first_of_tick(waiting)
  return waiting.kind == 't' and waiting.attempt == 1
end

local function read_policy(text)
  local overlap, misfire, grace, again, keep, ttl, size = string.match(text, '^(%l+) (%l+) (%d+) (%d) (%d+) (%d+) (%d+)$')
  local policy = {overlap = overlap, misfire = misfire, grace = tonumber(grace) * 1000, again = again == '1'}
  return policy, tonumber(keep), tonumber(ttl), tonumber(size)
end

-- Return the waiting runs in order.
local function read_queue(text)
  local queue = {}
  for item in string.gmatch(short(text), '%S+') do  -- word by word: one pattern for all words would read each digit many times
    local scheduled, attempt, kind = string.match(item, '^(%d+)/(%d+)/(%a)$')
    attempt = whole(attempt)
    if attempt and whole(scheduled) then queue[#queue + 1] = {scheduled = scheduled, attempt = attempt, kind = kind} end
  end
  return queue
end

local function queue_text(queue)
  local texts = {}
  for i, waiting in ipairs(queue) do
    texts[i] = waiting.scheduled .. '/' .. integer(waiting.attempt) .. '/' .. waiting.kind .. ' '
  end
  return table.concat(texts)
end

-- Return the runs of a job: for each slot its keys, the lease's token, and the record of the run.
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
      if not (whole(slot.scheduled) and whole(slot.attempt) and whole(slot.started) and whole(slot.fence)) then slot.token = nil end
    end
    slots[i] = slot
  end
  return slots
end

-- Carry out a process's claim on a job. Only the latest due tick is queued to run; with misfire 'all', every due tick is.
-- So after a pause of any length one run starts late, and not one for each tick.
-- `due`: the due ticks, at least one; `each`: true with misfire 'all'; `queue`: the waiting runs; `room`: number of runs that
-- may begin now; `skip`: function that records ticks that are not run.
local function claim(due, before, policy, each, queue, room, asleep, skip)
  local latest, all = due[#due], policy.misfire == 'all'
  local why = OVERTAKEN
  local late = policy.misfire == 'skip' and now - latest > policy.grace
  if late then why = TOO_LATE end
  if not each then  -- no tick waits when a later one is due
    for i = #queue, 1, -1 do
      if first_of_tick(queue[i]) then
        skip('missed', queue[i].scheduled, 1, queue[i].scheduled, OVERTAKEN)
        table.remove(queue, i)
      end
    end
  end
  local from, to, count = string.match(before, '^(%d+) (%d+) (%d+)$')
  if from and asleep(to) then
    skip('skipped', from, tonumber(count), to, 'paused')
  elseif from then
    skip('missed', from, tonumber(count), to, all and 'more than a hundred ticks were late' or why)
  end
  local waits = #queue > 0
  local blocked = policy.overlap ~= 'queue' and room <= #queue
  for i, tick in ipairs(due) do
    if asleep(tick) then
      skip('skipped', tick, 1, tick, 'paused')
    elseif late or (i < #due and not all) then
      skip('missed', tick, 1, tick, why)
    elseif blocked then
      skip('skipped', tick, 1, tick, room > 0 and waits and 'another run of it came first' or 'it was still running')
    elseif #queue >= QUEUE then
      skip('skipped', tick, 1, tick, 'the queue was full')
    else
      queue[#queue + 1] = {scheduled = tick, attempt = 1, kind = 't'}
    end
  end
end

-- Return the due ticks after `last`; and whether a tick may be due that the request does not list.
local function due_after(last, ticks, after)
  local due = {}
  for tick in string.gmatch(ticks, '%d+') do
    if tonumber(tick) > now then break end
    if tonumber(tick) > tonumber(last) then due[#due + 1] = tick end
  end
  return due, after ~= '' and tonumber(after) <= now and tonumber(after) > tonumber(last)
end

local function serve(at, a, count)
  local job, log = KEYS[at], KEYS[at + 1]
  local policy, keep, ttl, size = read_policy(ARGV[a + 2])
  local fields = redis.pcall('HMGET', job, 'v', 'rev', 'last', 'paused', 'fence', 'queued', 'cancel', 'def', 'resumed', 'origin')
  if fields.err then return refused(job, fields) end
  if not fields[3] then return {NO_JOB} end
  if fields[1] ~= '1' then return {OTHER_FORMAT, short(fields[1])} end
  for i, field in pairs({[2] = 'rev', [3] = 'last', [5] = 'fence'}) do
    if not whole(fields[i] or 0) then return no_number(job, field, fields[i]) end
  end
  local entries = redis.pcall('HGET', log, 'n')
  if type(entries) == 'table' then return refused(log, entries) end
  local slots, refusal = slots_of(at, count, job)
  if not slots then return refusal end
  local last, paused, queue, cancel = set_right(fields[3], now), fields[4], read_queue(fields[6]), short(fields[7])
  local resumed = whole(fields[9], 0)
  if resumed > now + SET_RIGHT then resumed = 0 end
  local wanted, taken_down, left_over = ARGV[a + 11], 0, false
  redis.call('PEXPIRE', job, KEEP_JOB)
  redis.call('PEXPIRE', log, KEEP_JOB)

  -- Close a run: write its entry to the log, and delete its record.
  local function close(i, status, text)
    local slot = slots[i]
    if status ~= 'back' then
      local word = status == 'again' and 'cancelled' or status
      write(log, size, word, slot.scheduled, 1, slot.scheduled, slot.started .. ' ' .. integer(now) .. ' ' .. slot.attempt .. ' '
        .. slot.fence .. '\n' .. slot.host .. '\n' .. text)
    end
    local attempt = tonumber(slot.attempt)
    if status == 'back' then
      table.insert(queue, 1, {scheduled = slot.scheduled, attempt = attempt, kind = slot.kind})
    elseif status == 'again' or (status == 'crashed' and policy.again and attempt < ATTEMPTS) then
      table.insert(queue, 1, {scheduled = slot.scheduled, attempt = attempt + 1, kind = slot.kind})
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

  -- Record the reported end of a run, unless it was recorded before, or the lease was found to have expired.
  local ended = tonumber(ARGV[a + 3])
  local slot = ended and slots[ended]
  if slot and slot.token == ARGV[a + 4] then
    local rest = math.floor(keep - math.max(0, now - slot.started) / 1000)  -- if the clock went back, the lease is kept no longer than this
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
  if fields[2] ~= ARGV[a + 1] then
    redis.call('HSET', job, 'queued', queue_text(queue))
    notify = notify or left_over  -- processes that know the new definition may run it
    return {REDEFINED, tonumber(fields[2]), short(fields[8]), tonumber(last), short(fields[10])}
  end
  -- This follows the check of the revision, because the caller's options decide whether a crashed run begins again. So
  -- they must be those of the present definition.
  for i = 0, count - 1 do
    if slots[i].token and slots[i].token ~= slots[i].holder then close(i, 'crashed', '') end
  end

  local running, held, free = 0, 0, nil
  for i = count - 1, 0, -1 do
    if slots[i].token then running = running + 1 end
    if slots[i].holder then held = held + 1 else free = i end
  end
  if held > 0 and policy.overlap ~= 'allow' then free = nil end  -- there are several slots if overlapping was allowed before
  if cancel ~= '' and running == 0 then
    redis.call('HDEL', job, 'cancel')
    cancel = ''
  end

  -- Claim the due tick, unless a process has dealt with it before.
  local function skip(status, from, ticks, to, why)
    write(log, size, status, from, ticks, to, '0 0 0 0\n\n' .. why)
  end
  local function asleep(tick)
    return paused or tonumber(tick) <= resumed
  end
  local each = policy.misfire == 'all' or policy.overlap == 'queue'
  local due, behind = due_after(last, ARGV[a + 9], ARGV[a + 10])
  if #due > 0 and ARGV[a + 7] == last and not behind then
    local room = free and (policy.overlap == 'allow' and count - held or 1) or 0
    claim(due, ARGV[a + 8], policy, each, queue, room, asleep, skip)
    last = due[#due]
  elseif #due > 0 then
    behind = true
  end

  -- Grant a waiting run, if there is room. A token that was granted a run before gets the same run.
  local granted = -1
  for i = 0, count - 1 do
    if slots[i].token and slots[i].token == wanted then
      granted = i
      redis.call('PEXPIRE', slots[i].run, ttl)
    end
  end
  local head = queue[1]
  while head and policy.misfire == 'skip' and policy.overlap ~= 'queue' and first_of_tick(head)
    and now - head.scheduled > policy.grace do  -- the run waited for too long, because no process had room for it
    skip('missed', head.scheduled, 1, head.scheduled, TOO_LATE)
    table.remove(queue, 1)
    head = queue[1]
  end
  local ready = free and head and (head.kind == 'h' or not paused)
  -- A later tick is due and not claimed yet; the process that claims it drops this one.
  if ready and behind and not each and first_of_tick(head) then ready = false end
  if granted == -1 and ready and wanted ~= '' then
    local slot = slots[free]
    local fence, upto = take(slot.run, slot.state, wanted, ttl, now, whole(fields[5]))
    keep_alive(slot.state, slot.queue, nil, ttl, now)
    slot.token, slot.holder, slot.fence, slot.scheduled, slot.attempt, slot.kind =
      wanted, wanted, integer(fence), head.scheduled, head.attempt, head.kind
    redis.call('HSET', job, 'fence', integer(upto), 'run:' .. free, wanted .. ' ' .. head.scheduled .. ' ' .. head.attempt .. ' '
      .. integer(now) .. ' ' .. integer(fence) .. ' ' .. head.kind .. ' ' .. host)
    table.remove(queue, 1)
    granted = free
  elseif ready and left_over then  -- the caller takes no run now, but another process may
    notify = true
  end
  redis.call('HSET', job, 'queued', queue_text(queue), 'last', last)

  local mine = slots[granted] or {fence = 0, scheduled = 0, attempt = 0}
  return {1, tonumber(last), lease_left(), #queue, cancel, taken_down, granted, tonumber(mine.fence), tonumber(mine.scheduled),
    tonumber(mine.attempt), mine.kind == 'h' and 1 or 0}
end

local answers, at, a = {1, now, whole(known[2], 0)}, 3, 6
while at <= #KEYS do
  local count = tonumber(ARGV[a])
  local answer = serve(at, a, count)
  answers[#answers + 1] = answer.err and {SERVER_ERROR, answer.err} or answer
  at, a = at + 2 + 3 * count, a + 12
end
if notify then
  changed(base, known[2])
  tell_runners(base, serving, now_ms, listener)
end
return answers
