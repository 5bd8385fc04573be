-- Shared by the scripts of a lock: its state, and the server's time.
--
-- state (hash):  v = format version, fence = last fence issued, dead = revoked tokens (newest last),
--                renewed = token and number of the last renewal,
--                keep = least time (server ms) at which state and queue expire,
--                at:<token> = end of the place of that waiter (server ms),
--                as:<token> = its name as a candidate; leader, term, name, value = token, term, name and value of the
--                holder that last proclaimed itself; given = token of the leader that last handed over
-- MODEL    models/lock_handover.pml
-- CODES    WRONG_TYPE OTHER_FORMAT NO_NUMBER
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse

-- Return a number as text with all its digits, for texts that a script builds; redis.call writes all digits by itself.
local function integer(n)
  return string.format('%.0f', n)  -- tostring(1.7e15) is '1.7e+15'
end

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Return the refusal for a read that failed because the key has another type.
local function refused(key, answer)
  if string.find(answer.err, 'WRONGTYPE', 1, true) then
    return {WRONG_TYPE, key, redis.call('TYPE', key).ok}
  end
  return answer
end

-- Return the refusal for a field that should be a number and is not. No other number is written there: the last fence is
-- unknown, and no fence may be issued twice.
local function no_number(key, field, text)
  return {NO_NUMBER, key, field, string.sub(text, 1, 40)}
end

-- Return the state: {fence, dead, v, keep, place of the token}, or nil and the refusal to return.
local function read_state(state, token)
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep', 'at:' .. token)
  if fields.err then return nil, refused(state, fields) end
  if fields[3] and fields[3] ~= '1' then return nil, {OTHER_FORMAT, short(fields[3])} end
  return fields
end

-- Return the state of a lock, with its fence as a number, or nil and the refusal to return.
local function read_lock(state, token)
  local fields, refusal = read_state(state, token)
  if not fields or not fields[1] then return fields, refusal end
  local fence = whole(fields[1])
  if not fence then return nil, no_number(state, 'fence', fields[1]) end
  fields[1] = fence
  return fields
end

-- Keep state and queue alive for KEEP, or twice the lease, from now. The expiry is set to twice this time and stored, so that
-- most runs need not set it again. `version`: format of the state; default: a lock's.
local function keep_alive(state, queue, kept, ttl, now, version)
  local ms = math.max(KEEP, 2 * ttl)
  local now_ms = math.floor(now / 1000)
  if whole(kept, 0) < now_ms + ms then
    redis.call('HSET', state, 'v', version or '1', 'keep', now_ms + 2 * ms)
    redis.call('PEXPIRE', state, 2 * ms)
    if redis.call('TYPE', queue).ok == 'zset' then redis.call('PEXPIRE', queue, 2 * ms) end  -- otherwise it has other data
  end
end

-- Revoke a token, because a late copy of a request with it may still arrive. Return the list of revoked tokens with this one
-- added. The list is capped: the newest hundred, 46 characters each. The caller keeps the state alive.
local function revoke(state, dead, token)
  dead = string.sub((dead or '') .. token .. ' ', -100 * (#token + 1))
  redis.call('HSET', state, 'dead', dead)
  return dead
end

-- Extend the caller's lock to at least `ttl` from now. The lease is never shortened: the request may be a late copy.
local function extend(lock, ttl)
  local left = redis.call('PTTL', lock)
  if left == -1 or left < ttl then redis.call('PEXPIRE', lock, ttl) end
end
