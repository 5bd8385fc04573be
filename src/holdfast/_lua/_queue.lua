-- Shared by the scripts of a lock: its state, its queue, and the direct hand-over.
--
-- inbox of a process: the channel hf:inbox:<process>. In a Cluster whose servers know sharded pub/sub a process has one on each
--                primary, and there an id of 18 digits, so made that its channel is in a slot of that primary.
--
-- state (hash):  v = format version, fence = last of the numbers issued, dead = tokens declared dead (newest last),
--                renewed = token and number of the last renewal,
--                keep = until when (server ms) the expiry of state and queue is set at least,
--                at:<token> = until when (server ms) the place of that waiter counts
-- queue (zset):  token -> arrival (server us). A token is here if and only if state has its at: field.
-- MODEL           models/handover.pml
--
-- Numbers go into redis.call as they are (it writes all their digits); only where text is built do they need integer().
local PLACE = 3000  -- ms a place counts after the last sign of life: three refreshes

local function integer(n)
  return string.format('%.0f', n)  -- tostring(1.7e15) is '1.7e+15'
end

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- What to return for a read that failed, here of a key: a refusal, where it holds something else than ours.
local function refused(key, answer)
  if string.find(answer.err, 'WRONGTYPE', 1, true) then
    return {-2, key, redis.call('TYPE', key).ok}
  end
  return answer
end

-- The state: {fence, dead, v, keep, place of the token}, or nil and the refusal to return.
local function read_state(state, token)
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep', 'at:' .. token)
  if fields.err then return nil, refused(state, fields) end
  if fields[3] and fields[3] ~= '1' then return nil, {-3, fields[3]} end
  return fields
end

-- Keeps state and queue alive for KEEP, or twice the lease, from now. Sets the expiry for twice as long and writes that
-- down, so that most runs need not set it again.
local function keep_alive(state, queue, kept, ttl, now)
  local ms = math.max(KEEP, 2 * ttl)
  local now_ms = math.floor(now / 1000)
  if (tonumber(kept) or 0) < now_ms + ms then
    redis.call('HSET', state, 'v', '1', 'keep', now_ms + 2 * ms)
    redis.call('PEXPIRE', state, 2 * ms)
    if redis.call('TYPE', queue).ok == 'zset' then redis.call('PEXPIRE', queue, 2 * ms) end  -- or it is not ours
  end
end

local function leave(state, queue, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', state, 'at:' .. token)
end

-- The lock is the caller's already: at least `ttl` from now. Never less, because this may be a late copy of a request.
local function extend(lock, ttl)
  local left = redis.call('PTTL', lock)
  if left == -1 or left < ttl then redis.call('PEXPIRE', lock, ttl) end
end

-- Answers how many listen, or an error.
local function publish(process, message)
  local inbox = 'hf:inbox:' .. process
  if #process == 18 then return redis.pcall('SPUBLISH', inbox, message) end
  return redis.pcall('PUBLISH', inbox, message)
end

-- The lock is free: hands it to the first live waiter. Answers that token, or nil if there is none, and the last number issued.
-- `me` (the caller, or false) is answered, not granted: it takes the lock itself. A waiter whose process does not listen
-- just now (PUBLISH answers 0) is passed over, and with it all others of that process, but they keep their places until
-- their deadlines. One run looks at a thousand places and removes a hundred at most: others want the server, too.
local function hand_over(lock, state, queue, now, me, last)
  local silent, granted, removed, from, page = {}, false, 0, 0, 1
  while from < 1000 do
    local line = redis.call('ZRANGE', queue, from, from + page - 1)
    for _, token in ipairs(line) do
      local at = redis.call('HGET', state, 'at:' .. token)
      local process = string.match(token, '^[^.]+')
      if at and at * 1000 > now then
        if token == me then return me, last end
        if not silent[process] then
          local first
          first, last = take(lock, state, token, CLAIM, now, last)
          granted = true
          local heard = publish(process, '1 ' .. token .. ' ' .. integer(first))
          if type(heard) == 'number' and heard > 0 then
            leave(state, queue, token)
            return token, last
          end
          silent[process] = true
        end
        from = from + 1
      elseif removed < 100 then
        leave(state, queue, token)
        removed = removed + 1
      else
        from = from + 1
      end
    end
    if #line < page then break end
    page = 100
  end
  if granted then redis.call('DEL', lock) end
  return nil, last
end

-- What a waiter is told: {0, ms until the holder's lease ends (-1: it has no end), last fence issued, holder's process, 1 if he
-- may keep the lock after use}. Only our own tokens have a public part; the value of a foreign lock is nobody's business.
local function waiting(lock, holder, last)
  local process, lingers = string.match(holder, '^(%x+)%.%x+(~?)$')
  return {0, redis.call('PTTL', lock), tonumber(last) or 0, process or '', lingers == '~' and 1 or 0}
end
