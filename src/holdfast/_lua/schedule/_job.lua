-- Shared by the scripts of a schedule.
-- MODEL    models/schedule.pml
--
-- base (hash):     v = format version, changes = another number whenever something was changed by hand,
--                  seq:<hope> = number of the last request of that process, who:<hope> = '<since (server us)> <its name>'
-- serving (zset):  hope of each process that serves the schedule -> until when that counts (server ms)
-- job (hash):      v, def = what it is, origin = the code that it runs, rev = when these were changed last (server us),
--                  by = hopes of those who have made it known so, the newest first,
--                  last = its last tick that was dealt with (server us), fence = last of the numbers issued, paused,
--                  resumed = when that ended last, cancel = fences of the runs to be ended,
--                  orders = ids of what was asked for by hand,
--                  queued = what is to run: '<scheduled>/<attempt>/<t: a tick, h: by hand> ' of each,
--                  run:<slot> = '<token> <scheduled> <attempt> <started> <fence> <t or h> <host>' of each that runs
-- log (hash):      n = entries there have been, size = how many are kept, and by <number % size> each entry:
--                  '<number> <status> <scheduled> <ticks> <last of them> <started> <ended> <attempt> <fence>\n<host>\n<text>',
--                  times in server us
-- run (string):    the lease of a run, as that of a lock, with a state beside it
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
local KEEP_JOB = 8640000000  -- ms a schedule outlives its last use: a hundred days
local ATTEMPTS = 3  -- runs of one tick, where each of them crashes
local QUEUE = 100  -- what waits to be run, of one job
local FORGET = 60000  -- ms after which the last number of a process that serves no more is forgotten
local SET_RIGHT = 10800000000  -- us: a clock that goes back by more than three hours was wrong before

-- Writes an entry, over the oldest. Ticks that were not run for one reason, one after the other, have one entry together.
local function write(log, size, status, scheduled, count, last, rest)
  local n = whole(redis.call('HGET', log, 'n'), 0)
  if n > 0 and (status == 'skipped' or status == 'missed') then
    local before = redis.call('HGET', log, (n - 1) % size)
    local number, from, ticks, to, what = string.match(before or '', '^(%d+) ' .. status .. ' (%d+) (%d+) (%d+) (.*)$')
    ticks = whole(ticks)
    if whole(number) == n - 1 and ticks and what == rest and tonumber(to) < tonumber(scheduled) then
      scheduled, count, n = from, ticks + count, n - 1
    end
  end
  redis.call('HSET', log, 'n', n + 1, 'size', size, n % size, integer(n) .. ' ' .. status .. ' ' .. scheduled .. ' '
    .. integer(count) .. ' ' .. last .. ' ' .. rest)
  redis.call('PEXPIRE', log, KEEP_JOB)
end

-- Forgets processes that serve no more: the next to begin does, or a schedule that is never changed would keep them all.
local function forget(base, serving, now_ms)
  local line = redis.call('ZRANGE', serving, 0, 99, 'WITHSCORES')
  for i = 1, #line, 2 do
    if tonumber(line[i + 1]) + FORGET >= now_ms then break end
    redis.call('ZREM', serving, line[i])
    redis.call('HDEL', base, 'seq:' .. line[i], 'who:' .. line[i])
  end
end

-- Tells all processes that serve the schedule, but this one, to look.
local function tell_runners(base, serving, now_ms, me)
  forget(base, serving, now_ms)
  local line = redis.call('ZRANGE', serving, 0, -1, 'WITHSCORES')
  for i = 1, #line, 2 do
    local hope, deadline = line[i], tonumber(line[i + 1])
    if deadline >= now_ms and hope ~= me then
      notify(base, hope)
    end
  end
end

-- The servants of the schedule, and since when, for those who look.
local function introduce(base, hope, host, now)
  redis.call('HSET', base, 'who:' .. hope, integer(now) .. ' ' .. host)
end

-- The last tick that was dealt with. After a small step back of the clock, no tick runs twice. After a correction by hours, the
-- job must not stay silent until the clock reaches the old time again.
local function set_right(last, now)
  if tonumber(last) <= now + SET_RIGHT then return last end
  return integer(now)
end

local function stay(base, serving)
  redis.call('PEXPIRE', base, KEEP_JOB)
  redis.call('PEXPIRE', serving, KEEP_JOB)
end

-- From the clock, if it begins anew: what counted before the server forgot everything must not come again.
local function changed(base, count)
  count = whole(count)
  redis.call('HSET', base, 'v', '1', 'changes', integer(count and count + 1 or now_us()))
end
