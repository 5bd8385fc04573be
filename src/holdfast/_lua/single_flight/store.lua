-- Store a value, end its load, and notify the waiters.
-- KEYS     value, fresh, load, state, floors, floor, waiters
-- ARGV     token; fence of its load; 'release' | 'bury': revoke the token from now on; kind of the value; ms for which it is
--          fresh; ms for which it is kept beyond that; us that the load took; tags, with a space before each; data; what happens
--          to a value with a lower fence if this one is refused: 'keep' | 'delete', because the caller wanted to replace it.
--          A value of the kind 'mark' is stored even if memory is full: the first write then deletes the load
-- RETURNS  {1, fence} stored, now or before | {0} the load has lost its lease: it expired, or the value was stored or
--          deleted meanwhile; or the token was revoked | {INVALIDATED} the load began before one of the tags was invalidated |
--          WRONG_TYPE and OTHER_FORMAT as in get_or_lease
-- SINCE    Redis 5
-- MODEL    models/single_flight.pml
-- CODES    INVALIDATED
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
-- INCLUDE  single_flight/_values
local value, fresh, load, state, floors, floor, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local token, fence, kind, tags = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[8]
local ttl, stale = tonumber(ARGV[5]), tonumber(ARGV[6])

local holder = redis.pcall('GET', load)
if type(holder) == 'table' then return refused(load, holder) end
local found = redis.pcall('GETRANGE', value, 0, HEAD)
if type(found) == 'table' then return refused(value, found) end
local fields, refusal = read_state(state, token)
if not fields then return refusal end
local _, before = parts(found)

-- A `set` that was refused, because a later set, load or invalidation came in between, still ends an older value.
local function drop_older()
  if ARGV[10] == 'delete' and not (before and before >= fence) then redis.call('DEL', value, fresh) end
end

if holder ~= token or whole(redis.call('HGET', state, 'of:' .. load)) ~= fence then
  if not holder or holder == token then redis.call('HDEL', state, 'of:' .. load) end
  if holder == token then  -- the state was evicted, or a late copy was granted; no other request would end the load
    redis.call('DEL', load)
    tell(waiters)
  end
  drop_older()
  return before == fence and {1, fence} or {0}  -- the request was sent again
end
if fields[2] and string.find(fields[2], token, 1, true) then return {0} end
if kind == 'mark' then redis.call('DEL', load) end
local now, last = now_us(), whole(fields[1], 0)
local now_ms = math.floor(now / 1000)
local highest = highest_floor(value, state, floor)
if not highest then
  highest = fence - 1
  redis.call('HSET', state, 'floor', highest)
end
local stored = not void(floors, floor, fence, tags)
if stored then
  local alone = is_alone(value)
  local life = alone and 0 or math.max(0, math.ceil((now - fence) / 1000)) + ttl + stale
  local head = FORMAT .. ' ' .. kind .. ' ' .. integer(fence) .. ' ' .. integer(now_ms + ttl) .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] .. tags
  redis.call('SET', value, head .. '\n' .. ARGV[9], 'PX', ttl + stale)
  if stale > 0 then redis.call('SET', fresh, '1', 'PX', ttl) else redis.call('DEL', fresh) end
  if life > whole(redis.call('HGET', state, 'life'), 0) then redis.call('HSET', state, 'life', life) end
  if fence > last then redis.call('HSET', state, 'fence', fence) end
  keep_alive(state, floors, whole(fields[4]), life, now)
  if not alone then redis.call('SET', floor, highest, 'PX', math.max(KEEP, 2 * life), 'NX') end
else
  drop_older()
end
redis.call('DEL', load)
redis.call('HDEL', state, 'of:' .. load)
if ARGV[3] == 'bury' then
  revoke(state, fields[2], token)
  keep_alive(state, floors, redis.call('HGET', state, 'keep'), 0, now)  -- read again: it may have been set above, for longer
end
tell(waiters)
return stored and {1, fence} or {INVALIDATED}
