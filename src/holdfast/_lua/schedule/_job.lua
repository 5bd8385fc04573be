-- Shared by the scripts of a schedule: its keys, its history, and the notification of its processes.
-- MODEL    models/schedule.pml
--
-- base (hash):     v = format version, changes = a number that rises with each change by hand;
--                  of each process, by its listener id: seq:<listener> = number of its last request to serve.lua,
--                  reg:<listener> = number of its last registration, who:<listener> = "<since (server us)> <name>"
-- serving (zset):  listener id of each process that serves the schedule -> end of its registration (server ms)
-- job (hash):      v, def = definition, origin = name of the code that it runs, rev = last change of these (server us),
--                  by = listener ids of the processes that declared it so, newest first,
--                  last = last tick that was dealt with (server us), fence = last fence issued, paused,
--                  resumed = end of the last pause, cancel = fences of the runs to be ended,
--                  orders = ids of commands to run it,
--                  queued = the waiting runs: '<scheduled>/<attempt>/<t: a tick, h: by hand> ' of each,
--                  run:<slot> = '<token> <scheduled> <attempt> <started> <fence> <t or h> <host>' of each run under way
-- log (hash):      n = number of entries written, size = number kept, and by <number % size> each entry:
--                  '<number> <status> <scheduled> <number of ticks> <last tick> <started> <ended> <attempt> <fence>\n<host>\n<text>',
--                  times in server us
-- run (string):    the lease of a run, a lock record with its state
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
local KEEP_JOB = 8640000000  -- ms for which a schedule's keys outlive their last use: a hundred days
local ATTEMPTS = 3  -- maximum number of runs of one tick, if each of them crashes
local QUEUE = 100  -- maximum number of waiting runs of one job
local FORGET = 60000  -- ms after which the record of a process that stopped serving is deleted
local SET_RIGHT = 10800000000  -- us: if the clock goes back by more than three hours, it was wrong before

-- Write an entry to the log, in place of the oldest. Consecutive ticks that were not run for the same reason share an entry.
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

-- Delete the records of processes that stopped serving. Each process that starts calls this; otherwise a schedule that is
-- never changed would keep all these records.
local function forget(base, serving, now_ms)
  local line = redis.call('ZRANGE', serving, 0, 99, 'WITHSCORES')
  for i = 1, #line, 2 do
    if tonumber(line[i + 1]) + FORGET >= now_ms then break end
    redis.call('ZREM', serving, line[i])
    redis.call('HDEL', base, 'seq:' .. line[i], 'reg:' .. line[i], 'who:' .. line[i])
  end
end

-- Notify all processes that serve the schedule except this one.
local function tell_runners(base, serving, now_ms, me)
  forget(base, serving, now_ms)
  local line = redis.call('ZRANGE', serving, 0, -1, 'WITHSCORES')
  for i = 1, #line, 2 do
    local listener, deadline = line[i], tonumber(line[i + 1])
    if deadline >= now_ms and listener ~= me then
      notify(base, listener)
    end
  end
end

-- Store the name of a process that serves the schedule, and since when, for status queries.
local function record_runner(base, listener, host, now)
  redis.call('HSET', base, 'who:' .. listener, integer(now) .. ' ' .. host)
end

-- Return the last tick that was dealt with, so that no tick runs twice after a small step back of the clock. After a
-- correction by hours, return the present time, so that the job need not wait until the clock reaches the old time again.
local function set_right(last, now)
  if tonumber(last) <= now + SET_RIGHT then return last end
  return integer(now)
end

local function stay(base, serving)
  redis.call('PEXPIRE', base, KEEP_JOB)
  redis.call('PEXPIRE', serving, KEEP_JOB)
end

-- Increase the number of changes. If there is none, begin with the server's time, so that no number is used again that was
-- used before a loss of data.
local function changed(base, count)
  count = whole(count)
  redis.call('HSET', base, 'v', '1', 'changes', integer(count and count + 1 or now_us()))
end
