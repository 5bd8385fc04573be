-- Void all values that have one of these tags, and all loads under way whose value will have one.
-- KEYS     state, floors, floor
-- ARGV     tags; '' is a tag of every value
-- RETURNS  {fence} of the newest load that may be void
--          WRONG_TYPE and OTHER_FORMAT as in get_or_lease
-- SINCE    Redis 5
-- MODEL    models/single_flight.pml
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
local state, floors, floor = KEYS[1], KEYS[2], KEYS[3]
local FEW = 100  -- up to this number of floors, it is not worthwhile to delete those below which no value exists any more
local fields, refusal = read_state(state, '')
if not fields then return refusal end
local count = redis.pcall('ZCARD', floors)
if type(count) == 'table' then return refused(floors, count) end
local life = math.max(KEEP, whole(redis.call('HGET', state, 'life'), 0))
local now = now_us()
local mark = math.max(now, whole(fields[1], 0))  -- at least the last fence issued, so that later loads are above it
-- There are no floors of tags, perhaps because they were evicted: each value that may have been invalidated before is void.
local before = count == 0 and whole(redis.call('HGET', state, 'floor'), mark)
redis.call('HSET', state, 'fence', mark, 'floor', mark)
keep_alive(state, floors, whole(fields[4]), life, now)
if before then redis.call('ZADD', floors, before, '') end
for _, tag in ipairs(ARGV) do redis.call('ZADD', floors, mark, tag) end
if count > FEW then
  -- No value loaded before this floor exists any more. A load that began before it cannot store its value, which might be void.
  local gone = mark - 1000 * life
  if redis.call('ZREMRANGEBYSCORE', floors, 0, gone) > 0 and not redis.call('ZSCORE', floors, '') then
    redis.call('ZADD', floors, gone, '')
  end
end
redis.call('SET', floor, mark, 'PX', 2 * life)
redis.call('PEXPIRE', floors, math.max(2 * life, redis.call('PTTL', state)))
return {mark}
