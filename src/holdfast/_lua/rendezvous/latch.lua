-- Look at a latch, count it down, or reset it. A latch is open when its count is zero. An event is a latch of count one.
-- KEYS     state, waiters, done
-- ARGV     format: 'event 1' | 'latch 1'; count; ms to keep it after its last use; then the operation:
--          'look', id of a listener to notify when the latch opens, or ''; ms for which the subscription lasts
--          'down', token of this call, by how many, name of the thing counted (a name counts once) or ''
--          'reset', token of this call
-- RETURNS  {missing, opened, born}        count; last opening (server us; 0: never); creation (server us; 0: there is no state)
--          {WRONG_TYPE, key, type}        the key has other data; nothing was written
--          {OTHER_FORMAT, format}         another kind of object, or written by an incompatible release
--          {OTHER_COUNT, count}           created with another count
--          {NO_NUMBER, key, field, text}  the field is not a number; nothing was written
-- SINCE    Redis 5
-- MODEL    models/rendezvous_latch.pml
--
-- state (hash):    v = format, count, left = what is missing, opened, born, round = last reset (server us)
-- waiters (zset):  id of a listener -> end of its subscription (server ms)
-- done (zset):     tokens of calls, and names that were counted -> end of their storage (server ms)
-- CODES    OTHER_FORMAT OTHER_COUNT
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
local state, waiters, done = KEYS[1], KEYS[2], KEYS[3]
local format, count, keep, what, id = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local MEMORY = 60000  -- ms after which no late copy of a request arrives any more
local EVER = 9e15

local fields = redis.pcall('HMGET', state, 'v', 'count', 'left', 'opened', 'born', 'round')
if fields.err then return refused(state, fields) end
if fields[1] and fields[1] ~= format then return {OTHER_FORMAT, short(fields[1])} end
for i, field in pairs({[2] = 'count', [3] = 'left', [4] = 'opened', [5] = 'born', [6] = 'round'}) do
  if not whole(fields[i] or 0) then return no_number(state, field, fields[i]) end
end
if fields[2] and tonumber(fields[2]) ~= count and what ~= 'reset' then return {OTHER_COUNT, tonumber(fields[2])} end
if what == 'look' and id == '' and not fields[1] then return {count, 0, 0} end
local now = now_us()
local now_ms = math.floor(now / 1000)
local left, opened = tonumber(fields[3] or count), tonumber(fields[4] or 0)
local born, round = fields[5] or integer(now), fields[6] or integer(now)

-- Return whether this call, or one for the same name, was counted before.
local function repeated()
  redis.call('ZREMRANGEBYSCORE', done, 0, now_ms)
  local before = redis.call('ZADD', done, now_ms + MEMORY, id) == 0
  local name = what == 'down' and ARGV[7] ~= '' and 'by ' .. round .. ' ' .. ARGV[7]
  return before or (name and redis.call('ZADD', done, EVER, name) == 0)
end

if what == 'look' then
  if id ~= '' then
    redis.call('ZREMRANGEBYSCORE', waiters, 0, now_ms)
    redis.call('ZADD', waiters, now_ms + ARGV[6], id)
    redis.call('PEXPIRE', waiters, math.max(ARGV[6], redis.call('PTTL', waiters)))
  end
elseif not repeated() then
  if what == 'reset' then
    left, round = count, integer(now)
  elseif left > 0 then
    left = math.max(0, left - ARGV[6])
    if left == 0 then
      opened = math.max(now, opened + 1)
      tell(waiters)
    end
  end
end
if what ~= 'look' or not fields[1] then
  redis.call('HSET', state, 'v', format, 'count', count, 'left', left, 'opened', opened, 'born', born, 'round', round)
end
redis.call('PEXPIRE', state, keep)
redis.call('PEXPIRE', done, math.max(keep, MEMORY))
return {left, opened, tonumber(born)}
