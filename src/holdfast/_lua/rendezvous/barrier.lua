-- Operate a barrier: arrive, refresh a place, pass together with all participants, break, abort, reset, or look.
-- KEYS     state, places, done, waiters, action
-- ARGV     number of participants; ms for which a place lasts after a refresh; ms to keep all keys after their last use;
--          token; then:
--          'come', '1' if an action has to be run before all go on, else '0'
--          'wait', server time (us) in the last reply
--          'pass': the action is done
--          'leave': stop waiting
--          'break', why: one word
--          'abort' | 'reset': the token identifies the call
--          'look'
-- RETURNS  {0, ms, now}                   waiting; ms until some participant counts as dead unless it refreshes its place; server us
--          {1, number}                    passed; the participant's number, from 0
--          {ACTING}                       all have come: run the action, under the lease `action`, then send 'pass' or 'break'
--          {BROKEN_UP, why, process}      the barrier is broken
--          {STANDING, count, broken}      number of participants waiting; 1 | 0
--          {OCCUPIED, ms}                 the action of the round before is running: come again when notified, or when its lease ends
--          {WRONG_TYPE, key, type}        the key has other data; nothing was written
--          {OTHER_FORMAT, format}         another kind of object, or written by an incompatible release
--          {OTHER_COUNT, parties}         created with another number of participants
--          {NO_NUMBER, key, field, text}  the field is not a number; nothing was written
-- SINCE    Redis 5
-- MODEL    models/rendezvous_barrier.pml
--
-- state (hash):    v = format, parties = number of participants, broken = reason and process,
--                  actor = token of the participant that runs the action, <token> = 'waiting', or its outcome: 'passed' and its number, or the reason of failure
-- places (zset):   token of a waiting participant -> end of its place (server ms)
-- done (zset):     token that does not wait any more -> end of its outcome's storage (server ms)
-- waiters (zset):  id of a listener to notify when the action is over -> end of its subscription (server ms)
-- action (string): token of the participant that runs the action, under a lease
-- CODES    OTHER_FORMAT OTHER_COUNT ACTING BROKEN_UP STANDING OCCUPIED
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_notify
local state, places, done, waiters, action = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local parties, ttl, keep, token, what, more = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local FORMAT = 'barrier 1'
local MEMORY = math.max(60000, 2 * ttl)  -- ms for which the outcome of a token is stored
local EVER = 9e15

local fields = redis.pcall('HMGET', state, 'v', 'parties', 'broken', 'actor', token)
if fields.err then return refused(state, fields) end
if fields[1] and fields[1] ~= FORMAT then return {OTHER_FORMAT, short(fields[1])} end
if not whole(fields[2] or 0) then return no_number(state, 'parties', fields[2]) end
local agreed = not fields[2] or tonumber(fields[2]) == parties
if not agreed and what ~= 'reset' and what ~= 'leave' then return {OTHER_COUNT, tonumber(fields[2])} end
if what == 'look' and not fields[1] then return {STANDING, 0, 0} end
local broken, actor, mine = fields[3], fields[4], fields[5]
local now = now_us()
local now_ms = math.floor(now / 1000)

local function remember(who, outcome)
  redis.call('HSET', state, who, outcome)
  redis.call('ZADD', done, now_ms + MEMORY, who)
  if who == token then mine = outcome end
end

-- Give all waiting participants the same outcome, and notify them.
local function settle(outcome)
  for i, who in ipairs(redis.call('ZRANGE', places, 0, -1)) do
    remember(who, outcome == 'passed' and 'passed ' .. (i - 1) or outcome)
  end
  if actor then
    redis.call('HDEL', state, 'actor')
    redis.call('DEL', action)
    tell(waiters)
    actor = false
  end
  tell(places)
end

local function destroy(why, who)
  broken = why .. ' ' .. string.match(who, '^[^.]*')
  redis.call('HSET', state, 'broken', broken)
  settle(broken)
end

local function first()
  local found = redis.call('ZRANGE', places, 0, 0, 'WITHSCORES')
  return found[1], tonumber(found[2])
end

-- Break the barrier if a participant's place has expired: the others would wait for it forever.
local function look_for_the_dead()
  local who, ends = first()
  if actor and redis.call('EXISTS', action) == 0 then
    destroy('died', actor)
  elseif who and ends <= now_ms then
    destroy('died', who)
  end
end

local function forget_the_old()
  local old = redis.call('ZRANGE', done, 0, 19, 'WITHSCORES')
  for i = 1, #old, 2 do
    if tonumber(old[i + 1]) > now_ms then return end
    redis.call('HDEL', state, old[i])
    redis.call('ZREM', done, old[i])
  end
end

local function come()
  redis.call('ZADD', places, now_ms + ttl, token)
  redis.call('HSET', state, token, 'waiting')
  mine = 'waiting'
  if redis.call('ZCARD', places) < parties then return end
  if more == '0' then return settle('passed') end
  actor = token
  redis.call('HSET', state, 'actor', token)
  redis.call('ZADD', places, EVER, token)
  redis.call('SET', action, token, 'PX', ttl)
end

-- Apply the request of a token that waits.
local function go_on()
  if what == 'break' or (what == 'leave' and token == actor) then
    destroy(more or 'action', token)
  elseif what == 'leave' and actor then
    redis.call('ZADD', places, EVER, token)  -- all have come already: it counts as waiting, and its place does not expire
  elseif what == 'leave' then
    redis.call('ZREM', places, token)
    remember(token, 'left ')
  elseif what == 'pass' and token == actor then
    settle('passed')
  elseif what == 'pass' then  -- the server lost the record that it ran the action, and another round may have passed
    redis.call('ZREM', places, token)
    remember(token, 'lost ')
  elseif token == actor then
    extend(action, ttl)
  else
    redis.call('ZADD', places, now_ms + ttl, token)
  end
end

-- Apply the request of an unknown token.
local function begin()
  if what == 'come' then
    if broken then
      remember(token, broken)  -- otherwise a late copy of this request would count after a reset
    elseif not actor then
      come()
    end
  elseif what == 'abort' then
    if not broken then destroy('abort', token) end
    remember(token, 'done ')
  elseif what == 'reset' then
    settle('reset ' .. string.match(token, '^[^.]*'))
    redis.call('HDEL', state, 'broken')
    broken = false
    remember(token, 'done ')
  elseif what == 'wait' and now_ms - more / 1000 < MEMORY then
    -- If this token had an outcome, it would still be stored. So the server has lost the token, and perhaps other
    -- participants, too.
    if not broken then destroy('lost', '') end
    mine = broken
  elseif what == 'wait' or what == 'pass' then
    mine = 'lost '
  elseif what ~= 'look' then
    remember(token, 'left ')  -- a late copy of its 'come' finds this
  end
end

local function answer()
  if what == 'look' or what == 'leave' or what == 'abort' or what == 'reset' then
    return {STANDING, redis.call('ZCARD', places), broken and 1 or 0}
  elseif not mine then
    local ms = redis.call('PTTL', action)
    redis.call('ZADD', waiters, now_ms + 2 * ttl, token)
    redis.call('PEXPIRE', waiters, keep)
    return {OCCUPIED, ms}
  elseif mine ~= 'waiting' then
    local outcome, detail = string.match(mine, '^(%S+) (%S*)$')
    return outcome == 'passed' and {1, whole(detail, 0)} or {BROKEN_UP, short(outcome or 'lost'), short(detail)}
  elseif token == actor then
    return {ACTING}
  end
  local _, ends = first()
  return {0, math.min(ends - now_ms, actor and redis.call('PTTL', action) or EVER), now}
end

forget_the_old()
look_for_the_dead()
if mine == 'waiting' then
  go_on()
elseif not mine then
  begin()
end
local said = answer()
redis.call('HSET', state, 'v', FORMAT, 'parties', (what == 'reset' or not fields[2]) and parties or fields[2])
for _, key in ipairs({state, places, done}) do redis.call('PEXPIRE', key, math.max(keep, MEMORY)) end
return said
