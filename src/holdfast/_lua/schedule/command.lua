-- Carry out a command about a job.
-- KEYS     base, serving, jobs, job, log
-- ARGV     'pause' | 'resume' | 'run': once, now | 'cancel': end the runs under way | 'remove'; id of this request; name of the job
-- RETURNS  {1, number of runs that are to be ended} | {0}: no such job | {QUEUE_FULL}: too many runs wait already |
--          WRONG_TYPE and OTHER_FORMAT as in `codes`
-- SINCE    Redis 5
-- MODEL    models/schedule.pml
-- CODES    OTHER_FORMAT QUEUE_FULL
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  schedule/_job
local base, serving, jobs, job, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local what, id = ARGV[1], ARGV[2]
local now = now_us()
local known = redis.call('HMGET', base, 'changes', 'v')
if known[2] and known[2] ~= '1' then return {OTHER_FORMAT, short(known[2])} end
local fields = redis.pcall('HMGET', job, 'v', 'rev', 'paused', 'queued', 'orders')
if fields.err then return refused(job, fields) end
if fields[1] and fields[1] ~= '1' then return {OTHER_FORMAT, short(fields[1])} end
if not fields[1] then
  if what == 'remove' then redis.call('ZREM', jobs, ARGV[3]) end
  return {0}
end
local count = 0

if what == 'pause' then
  redis.call('HSET', job, 'paused', '1')
elseif what == 'resume' then
  if fields[3] then redis.call('HSET', job, 'resumed', integer(now)) end
  redis.call('HDEL', job, 'paused')
elseif what == 'run' then
  local orders = fields[5] or ''
  if not string.find(orders, id, 1, true) then  -- otherwise this is a late copy of the request
    local queued, waiting = string.gsub(fields[4] or '', ' ', ' ')
    if waiting >= QUEUE then return {QUEUE_FULL} end
    queued = integer(now) .. '/1/h ' .. queued
    redis.call('HSET', job, 'queued', queued, 'orders', string.sub(orders .. id .. ' ', -1000))
  end
elseif what == 'cancel' then
  local fences = ''
  for i = 0, 9 do
    local record = redis.call('HGET', job, 'run:' .. i)
    if record then
      fences, count = fences .. (string.match(record, '^%S+ %d+ %d+ %d+ (%d+)') or 0) .. ' ', count + 1
    end
  end
  redis.call('HSET', job, 'cancel', fences)
elseif what == 'remove' then
  redis.call('DEL', job, log)
  redis.call('ZREM', jobs, ARGV[3])
end
changed(base, known[1])
tell_runners(base, serving, math.floor(now / 1000), '')
stay(base, serving)
return {1, count}
