-- Shared by acquire, release and refresh: the queue, the fence, and the direct hand-over. Not a script of its own: the
-- loader puts this text before a script that says INCLUDE.
--
-- state (hash):  v = format version, fence = last fence issued, dead = tokens declared dead (newest last),
--                at:<token> = until when (server ms) the place of that waiter counts
-- queue (zset):  token -> arrival (server us). A token is here if and only if state has its at: field, so the two are
--                always kept alive together.
local CLAIM = 2000   -- ms a granted waiter has to take up the lock
local PLACE = 3000   -- ms a place counts after the last sign of life: three refreshes
local KEEP = 600000  -- ms the side keys outlive their last use, at least

local function integer(n)
  return string.format('%.0f', n)  -- tostring(1.7e15) is '1.7e+15'
end

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Reads that are type checks too: answers lock value, state fields, first token in line; or nil and the refusal to return.
local function look(lock, state, queue)
  local seen = {redis.pcall('GET', lock), redis.pcall('HMGET', state, 'fence', 'dead', 'v'), redis.pcall('ZRANGE', queue, 0, 0)}
  local keys = {lock, state, queue}
  for i = 1, 3 do
    local e = type(seen[i]) == 'table' and seen[i].err
    if e and string.find(e, 'WRONGTYPE', 1, true) then
      return nil, {-2, keys[i], redis.call('TYPE', keys[i]).ok}
    elseif e then
      return nil, seen[i]
    end
  end
  local version = seen[2][3]
  if version and version ~= '1' then
    return nil, {-3, version}
  end
  return seen
end

local function keep(state, queue, ttl)
  local ms = integer(math.max(KEEP, 2 * ttl))
  redis.call('PEXPIRE', state, ms)
  redis.call('PEXPIRE', queue, ms)
end

local function leave(state, queue, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', state, 'at:' .. token)
end

-- Writes the lock for `token` and draws its fence. The lock key comes last: nothing is rolled back if a write is refused.
local function take(lock, state, queue, token, ttl, now)
  local last = tonumber(redis.call('HGET', state, 'fence') or 0)
  local fence = integer(math.max(last + 1, now))
  redis.call('HSET', state, 'v', '1', 'fence', fence)
  keep(state, queue, ttl)
  redis.call('SET', lock, token, 'PX', integer(ttl))
  return tonumber(fence)
end

-- The lock is free: hands it to the first live waiter and answers that token, or nil if there is none. `me` (the caller,
-- or false) is answered, not granted: it takes the lock itself. A waiter whose process does not listen just now (PUBLISH
-- answers 0) is passed over but keeps its place until its deadline. At most 101 places are looked at in one run.
local function hand_over(lock, state, queue, now, me)
  local granted = false
  for _, token in ipairs(redis.call('ZRANGE', queue, 0, 100)) do
    local at = redis.call('HGET', state, 'at:' .. token)
    if not at or tonumber(at) * 1000 <= now then
      leave(state, queue, token)
    elseif token == me then
      return me
    else
      local fence = take(lock, state, queue, token, CLAIM, now)
      granted = true
      local process = string.match(token, '^[^.]+')
      local heard = redis.pcall('PUBLISH', 'hf:inbox:' .. process, '1 ' .. token .. ' ' .. integer(fence))
      if type(heard) == 'number' and heard > 0 then
        leave(state, queue, token)
        return token
      end
    end
  end
  if granted then redis.call('DEL', lock) end
  return nil
end

-- What a waiter is told: {0, ms until the holder's lease ends (-1: it has no end), last fence issued, holder's process}.
-- Only our own tokens have a public part; the value of a foreign lock is nobody's business.
local function waiting(lock, state)
  local holder = redis.call('GET', lock) or ''
  local last = tonumber(redis.call('HGET', state, 'fence') or 0)
  return {0, redis.call('PTTL', lock), last, string.match(holder, '^(%x+)%.%x+$') or ''}
end
