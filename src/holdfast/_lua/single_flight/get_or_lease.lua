-- Return a value; if there is none, or it has expired, grant the load to one caller.
-- KEYS     value, load, state, floors, floor, waiters
-- ARGV     token, for the load; its lease in ms, or '0': do not load; id of a listener to notify if another caller loads it, or '';
--          ms for which an expired value is accepted meanwhile; how early to load: thousandths of the last load's duration;
--          maximum size of a value in bytes; treatment of an unreadable or longer value: 'void', it is replaced by a load, or
--          'keep', it is an error
-- RETURNS  {1, value, ms}                  fresh for another ms
--          {STALE, value, ms}              stale for -ms; another caller loads it, or the caller asked not to load
--          {LEASED, fence, value, ms}      the caller has to load, for the full lease; the same again for the same token;
--                                          value: the stored one, though not fresh, or ''
--          {ABSENT}                        there is none, and the caller asked not to load
--          {0, remaining ms, ms, process}  another caller loads it; ms since the newest load in the group; remaining -1: the
--                                          lease has no expiry
--          {NO_CLAIM}                      this token was revoked: the request is a late copy of an abandoned one
--          {TOO_LONG, bytes}               there is a value, but it is too long
--          {WRONG_TYPE, key, type}         the key has other data; nothing was written
--          {OTHER_FORMAT, version}         written by an incompatible release
-- SINCE    Redis 5
-- MODEL    models/single_flight.pml
--
-- Early: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic Cache Stampede Prevention" (VLDB 2015).
-- CODES    NO_CLAIM WRONG_TYPE STALE LEASED ABSENT TOO_LONG
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  single_flight/_values
local value, load, state, floors, floor, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, lease, listener, stale = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local MAX_LISTENERS = 10000  -- maximum number of listeners; further callers ask again when the lease ends
local PATIENCE = 2000  -- ms for which a subscription outlives the lease

local now = now_us()
local now_ms = math.floor(now / 1000)
local size = redis.pcall('STRLEN', value)
if type(size) == 'table' then return refused(value, size) end
local usable, left, found, kind, fence, fresh, cost, tags = false, 0
if size > 0 then
  if size <= tonumber(ARGV[6]) then
    found = redis.call('GET', value)
    kind, fence, fresh, cost, tags = parts(found)
  end
  if not kind and ARGV[7] == 'keep' then
    if found or not parts(redis.call('GETRANGE', value, 0, HEAD)) then return {WRONG_TYPE, value, 'string'} end
    return {TOO_LONG, size}
  end
end
if kind then
  local highest = highest_floor(value, state, floor)
  if not highest then highest, fence = 0, 0 end  -- the invalidations were lost, so the value counts as void
  if highest < fence or not void(floors, floor, fence, tags) then
    left = fresh - now_ms
    local hurry = ARGV[5] ~= '0' and cost * ARGV[5] / 1000000 >= left
    if left > 0 and not hurry then return {1, found, left} end
    usable = left + stale > 0
  end
end
local holder = redis.pcall('GET', load)
if type(holder) == 'table' then return refused(load, holder) end
if (holder and holder ~= token) or lease == 0 then
  if usable then return {left > 0 and 1 or STALE, found, left} end
  if lease == 0 then return {ABSENT} end
end
local fields, refusal = read_state(state, token)
if not fields then return refusal end
if fields[2] and string.find(fields[2], token, 1, true) then return {NO_CLAIM} end
if holder and holder ~= token then
  local remaining = redis.call('PTTL', load)
  if listener ~= '' then
    local until_ms = now_ms + math.max(remaining, 0) + PATIENCE
    if redis.call('TYPE', waiters).ok ~= 'zset' then redis.call('DEL', waiters) end
    redis.call('ZREMRANGEBYSCORE', waiters, 0, now_ms)
    if redis.call('ZCARD', waiters) < MAX_LISTENERS then redis.call('ZADD', waiters, until_ms, listener) end
    if redis.call('PTTL', waiters) < until_ms - now_ms then redis.call('PEXPIRE', waiters, until_ms - now_ms) end
  end
  local began = whole(fields[1], now) - BLOCK + 1
  local process = #holder <= 64 and string.match(holder, '^(%x[%x{}@]*)%.%x+$') or ''
  return {0, remaining, math.max(0, math.floor((now - began) / 1000)), process}
end
-- INCLUDE  single_flight/_lease
keep_alive(state, floors, whole(fields[4]), lease, now)
return {LEASED, lease_to(load, state, token, lease, now, whole(fields[1]), holder), usable and found or '', left}
