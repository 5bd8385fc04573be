-- Return the leader of an election, and list an observer to be notified when the leader may have changed.
-- KEYS     lock, state, observers
-- ARGV     ms for which an observer wants to be notified; its id, or ''
-- RETURNS  {1, remaining ms, term, name, value}                 the leader; remaining as below
--          {UNPROCLAIMED, remaining ms}                         the holder has not proclaimed itself yet; -1: it has no expiry
--          {0}                                                  nobody holds the lock
--          WRONG_TYPE and OTHER_FORMAT  as in proclaim; NO_NUMBER as in lock/acquire
-- SINCE    Redis 5
-- MODEL    models/election.pml
-- CODES    OTHER_FORMAT UNPROCLAIMED
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
local lock, state, observers, ms, listener = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), ARGV[2]
local VALUE = 65536  -- maximum length, in bytes, of a leader's value
local MAX_LISTENERS = 10000  -- maximum number of observers to notify; others poll
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields = redis.pcall('HMGET', state, 'v', 'leader', 'term')
if fields.err then return refused(state, fields) end
if fields[1] and fields[1] ~= '1' then return {OTHER_FORMAT, short(fields[1])} end
local listed = redis.pcall('ZCARD', observers)
if type(listed) == 'table' then return refused(observers, listed) end

if listener ~= '' then
  local now_ms = math.floor(now_us() / 1000)
  if listed >= MAX_LISTENERS then listed = listed - redis.call('ZREMRANGEBYSCORE', observers, 0, now_ms) end
  if listed < MAX_LISTENERS then redis.pcall('ZADD', observers, now_ms + ms, listener) end  -- if memory is full, this fails and the observer polls
  if redis.call('PTTL', observers) < ms then redis.call('PEXPIRE', observers, ms) end
end
if not holder then return {0} end
local remaining = redis.call('PTTL', lock)
if fields[2] ~= holder then return {UNPROCLAIMED, remaining} end
local name, value = redis.call('HSTRLEN', state, 'name'), redis.call('HSTRLEN', state, 'value')
if name > LONGEST or value > VALUE then return {UNPROCLAIMED, remaining} end
local term = whole(fields[3])
if not term then return no_number(state, 'term', fields[3] or '') end
return {1, remaining, term, unpack(redis.call('HMGET', state, 'name', 'value'))}
