-- Return the holders and waiters of some locks. Writes nothing.
-- KEYS     lock, state, queue, listeners of each, one after the other
-- ARGV     maximum number of holders, and of waiters, to list for each lock
-- RETURNS  {server time us, answer, answer, ...}; an answer is
--          {type of the lock's key, format, last fence, number of waiters, holders, line, used, limit, name of the leader or ''}
--          format: from the state, or from the lock's own hash; empty if neither has it
--          holders: {process, mark, remaining ms, its fence or 0, weight, 1 if it may keep the lock after use} of each;
--          process empty: a client of another library; remaining -1: its key has no expiry
--          line, in order: {process, since (server us), ms until the place expires (-1: unknown), weight} of each
-- SINCE    Redis 5
-- MODEL    models/lock_handover.pml
--
-- No token is ever returned. A holder's mark is part of the hash of its token: marks can be compared, and show no token.
-- INCLUDE  shared/_parse
local most = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- A field that is not a number counts as 0, so that one malformed lock does not hide all others.
local function whose(token)
  local process, sort, weight = string.match(token, '^(%x[%x{}@]*)%.%x+([~*]?)(%d*)$')
  return short(process), math.max(1, whole(weight, 0)), sort == '~' and 1 or 0
end

local function holding(token, left, fence, permits)
  local process, weight, lingers = whose(token)
  return {process, string.sub(redis.sha1hex(token), 1, 16), left, fence, permits or weight, lingers}
end

-- Return the holders of a shared lock, from its sorted set: token -> end of its lease (server ms).
local function sharing(lock, state)
  local found, members = {}, redis.call('ZRANGE', lock, 0, most - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local left = math.max(0, whole(members[i + 1], 0) - math.floor(now / 1000))
    local what = redis.pcall('HGET', state, 'h:' .. members[i])
    local fence, permits = string.match(type(what) == 'string' and what or '', '^(%d+) (%d+) ')
    found[#found + 1] = holding(members[i], left, whole(fence, 0), permits and whole(permits, 0))
  end
  return found
end

-- Return the waiters. A waiter for a lock on several servers (`listening`) has no place that expires.
local function standing(state, queue, listening)
  local found, members = {}, redis.call('ZRANGE', queue, 0, most - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local process, weight = whose(members[i])
    local at = not listening and redis.pcall('HGET', state, 'at:' .. members[i])
    local left = type(at) == 'string' and math.max(0, whole(at, 0) - math.floor(now / 1000)) or -1
    found[#found + 1] = {process, whole(members[i + 1], 0), left, weight}
  end
  return found
end

local function read_lock(lock, state, queue, listeners)
  local kind, held = 'string', redis.pcall('GET', lock)
  if type(held) == 'table' then kind = redis.call('TYPE', lock).ok end
  if not held then kind = 'none' end
  local fields = redis.pcall('HMGET', state, 'v', 'fence', 'used', 'limit', 'leader', 'name')
  if fields.err then fields = {} end
  local format, holders, line, waiting = short(fields[1]), {}, {}, 0
  if kind == 'string' then
    holders = {holding(held, redis.call('PTTL', lock), whole(fields[2], 0))}
  elseif kind == 'zset' and format ~= '' then
    holders = sharing(lock, state)
  elseif kind == 'hash' then
    format = short(redis.call('HGET', lock, 'v'))
  end
  if redis.call('EXISTS', queue, listeners) > 0 then
    local listening = false
    waiting = redis.pcall('ZCARD', queue)
    if waiting == 0 then waiting, listening = redis.pcall('ZCARD', listeners), true end
    if type(waiting) == 'table' then waiting = 0 end
    if waiting > 0 and most > 1 then line = standing(state, listening and listeners or queue, listening) end
  end
  local name = fields[5] and fields[5] == held and short(fields[6]) or ''
  return {kind, format, whole(fields[2], 0), waiting, holders, line, whole(fields[3], 0), whole(fields[4], 0), name}
end

local answers = {now}
for i = 1, #KEYS, 4 do
  answers[#answers + 1] = read_lock(KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3])
end
return answers
