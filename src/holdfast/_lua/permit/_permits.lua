-- Shared by the scripts of semaphores and read-write locks: the records of holders, and the direct hand-over to waiters. There
-- is a limited number of permits, and each holder has one or more.
--
-- holders (zset):  token -> end of its lease (server ms). A token ends in '*' and the number of permits wanted.
-- state (hash):    as a lock's, but v = 'semaphore 1' or 'rwlock 1', and besides: limit = number of permits,
--                  was = all limits so far, used = number of permits held,
--                  h:<token> = fence, number of permits and number of the last renewal of a holder
-- queue (zset):    as a lock's
-- MODEL    models/permit.pml
-- CODES    OTHER_FORMAT GRANTED
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_waiters

local function wanted(token)
  return whole(string.match(token, '%*(%d+)$'))
end

-- Return a holder's fence, number of permits, and number of the last renewal. Return nil if the token is no holder, or if its
-- record is unreadable.
local function holding(state, token)
  local what = redis.call('HGET', state, 'h:' .. token)
  if not what then return nil end
  local fence, permits, number = string.match(what, '^(%d+) (%d+) (%d+)$')
  fence, permits, number = whole(fence), whole(permits), whole(number)
  if fence and permits and number then return fence, permits, number end
end

local function note(p, token, fence, permits, number)
  local what = string.format('%.0f %.0f %.0f', fence, permits, number)
  if not p.fence then return redis.call('HSET', p.state, 'h:' .. token, what, 'used', p.used) end
  redis.call('HSET', p.state, 'h:' .. token, what, 'fence', p.fence, 'used', p.used)
end

-- Remove holders and free their permits. The first write frees memory, so that a full server lets the script go on. Many
-- holders at once cost hardly more than one.
local function remove(p, tokens)
  local fields = {}
  for i, token in ipairs(tokens) do fields[i] = 'h:' .. token end
  local notes = redis.call('HMGET', p.state, unpack(fields))
  redis.call('ZREM', p.holders, unpack(tokens))
  redis.call('HDEL', p.state, unpack(fields))
  p.left = nil  -- the key may be gone, with its expiry
  for i, token in ipairs(tokens) do
    local permits = whole(string.match(notes[i] or '', ' (%d+) ')) or wanted(token) or 0
    p.used = math.max(0, p.used - permits)
  end
  if p.v then redis.call('HSET', p.state, 'used', p.used) end
end

-- Remove all holders whose leases have expired. If some were left for a later run, a client that asks only once could be told
-- that nothing is free. There may be thousands, if many crashed at the same time. One run removes about nine thousand at most,
-- because a longer run would delay other clients.
local function expire(p)
  local page = 100
  for _ = 1, 10 do
    local first, over = redis.call('ZRANGE', p.holders, 0, page - 1, 'WITHSCORES'), {}
    for i = 1, #first, 2 do
      if tonumber(first[i + 1]) > p.now_ms then break end
      over[#over + 1] = first[i]
    end
    if over[1] then remove(p, over) end
    if #over < page then break end
    page = 1000
  end
end

-- Read the holders, and remove those whose leases have expired. Return {holders, state, queue, now (us), and the fields of
-- the state}, or nil and the refusal to return. If the state has malformed numbers, return both: then held permits can be
-- renewed and released, but nothing is granted.
local function open_permits(holders, state, queue, token)
  local count = redis.pcall('ZCARD', holders)
  if type(count) == 'table' then return nil, refused(holders, count) end
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep', 'limit', 'was', 'used', 'at:' .. token)
  if fields.err then return nil, refused(state, fields) end
  if fields[3] and not string.find(fields[3], '^%a+ 1$') then return nil, {OTHER_FORMAT, short(fields[3])} end
  local waiters = redis.pcall('ZCARD', queue)
  if type(waiters) == 'table' then return nil, refused(queue, waiters) end
  local p = {
    holders = holders, state = state, queue = queue, now = now_us(), waiters = waiters, fence = whole(fields[1] or 0),
    dead = fields[2] or '', v = fields[3], keep = fields[4], limit = whole(fields[5]), was = fields[6] or '', place = fields[8],
    used = count == 0 and 0 or whole(fields[7]),
  }
  local odd
  if not p.fence then odd = no_number(state, 'fence', fields[1]) end
  if fields[5] and not p.limit then odd = no_number(state, 'limit', fields[5]) end
  if odd then p.limit = nil end
  if count == 0 and whole(fields[7] or 0) ~= 0 then  -- the leases of all holders have expired, and so has the key
    for _, field in ipairs(redis.call('HKEYS', state)) do
      if string.sub(field, 1, 2) == 'h:' then redis.call('HDEL', state, field) end
    end
    redis.call('HSET', state, 'used', 0)
  end
  if not p.used then  -- the state was lost, but the holders were not
    p.used = 0
    for _, holder in ipairs(redis.call('ZRANGE', holders, 0, -1)) do p.used = p.used + (wanted(holder) or 0) end
  end
  p.now_ms = math.floor(p.now / 1000)
  if count > 0 then expire(p) end
  return p, odd
end

local function extend_permits(p, token, ttl)
  redis.call('ZADD', p.holders, p.now_ms + ttl, token)
  p.left = p.left or redis.call('PTTL', p.holders)
  if p.left < ttl then
    redis.call('PEXPIRE', p.holders, ttl)
    p.left = ttl
  end
end

-- Grant a token the permits that it wants, for `ttl`, and return its fence. The state must exist, or the caller creates it.
local function admit(p, token, ttl)
  p.fence = math.max(p.fence + 1, p.now)
  p.used = p.used + wanted(token)
  note(p, token, p.fence, wanted(token), 0)
  extend_permits(p, token, ttl)
  return p.fence
end

-- Renew a holder's lease to `ttl` and return its fence; nil if it is no holder. The lease is never shortened: the request
-- may be a late copy.
local function confirm(p, token, ttl)
  local until_ms = redis.call('ZSCORE', p.holders, token)
  if not until_ms then return nil end
  local fence = holding(p.state, token)
  if not fence then  -- the state was lost
    remove(p, {token})
    return admit(p, token, ttl)
  end
  if until_ms - p.now_ms < ttl then extend_permits(p, token, ttl) end
  return fence
end

-- Return the times (server ms) at which the places of these waiters expire.
local function places_of(p, line)
  local fields = {}
  for i, token in ipairs(line) do fields[i] = 'at:' .. token end
  return fields[1] and redis.call('HMGET', p.state, unpack(fields)) or {}
end

-- Remove waiters from the queue. Many at once, as when a writer is followed by many readers, cost hardly more than one.
local function leave_all(p, tokens)
  if not tokens[1] then return end
  local fields = {}
  for i, token in ipairs(tokens) do fields[i] = 'at:' .. token end
  redis.call('ZREM', p.queue, unpack(tokens))
  redis.call('HDEL', p.state, unpack(fields))
end

-- Grant free permits to waiters, in order. `me` is the token of the caller, or false; its lease is `ttl`. Return two values:
-- the fence of `me`, if it was granted its permits, and whether a waiter is left that nobody may overtake.
-- A waiter is passed over if its process does not listen, or if its place was not refreshed for the time of a claim window. The
-- waiter keeps its place until the place expires. One run reads at most a thousand places, and removes or serves at most a
-- hundred, because a longer run would delay other clients.
local function serve(p, me, ttl)
  local listening, done, from, mine, blocked = {}, 0, 0, nil, false
  while from < 1000 and p.waiters > 0 and not blocked do
    local line, leaving = redis.call('ZRANGE', p.queue, from, from + 99), {}
    local places = places_of(p, line)
    for i, token in ipairs(line) do
      local at = whole(places[i], 0)
      local process, many = string.match(token, '^[^.]*'), wanted(token)
      local inbox = inbox_of(p.holders, token)
      if listening[process] == nil then listening[process] = token == me or listens(inbox) end
      blocked = done == 100
      if blocked then break end
      if at <= p.now_ms or not many or many > p.limit then  -- the limit may have been lowered since
        leaving[#leaving + 1] = token
        done = done + 1
      elseif token ~= me and (at - p.now_ms < PLACE - CLAIM or not listening[process]) then
        from = from + 1
      elseif p.used + many > p.limit then
        blocked = true
        break
      elseif token == me then
        mine = admit(p, me, ttl)
        leaving[#leaving + 1] = me
        done = done + 1
      else
        admit(p, token, CLAIM)
        local heard = publish(inbox, GRANTED .. ' ' .. token .. ' ' .. integer(p.fence))
        -- If access control refuses PUBLISH, the waiter gets its permits, and asks within a second. If it were passed over, it
        -- could wait forever.
        if type(heard) == 'table' or heard > 0 then
          leaving[#leaving + 1] = token
          done = done + 1
        else
          remove(p, {token})
          listening[process] = false
          from = from + 1
        end
      end
    end
    leave_all(p, leaving)
    if #line < 100 then break end
  end
  return mine, blocked
end

-- Return the reply to a waiter, as for a lock: {0, ms until the first lease of a holder ends, last fence, process of that
-- holder, 0}.
local function waiting_for(p)
  local first = redis.call('ZRANGE', p.holders, 0, 0, 'WITHSCORES')
  if not first[1] then return {0, CLAIM, p.fence, '', 0} end
  local left = math.min(MOST, math.max(0, math.ceil(first[2] - p.now_ms)))  -- a foreign score may be infinite, which is no reply
  return {0, left, p.fence, short(string.match(first[1], '^(%x[%x{}@]*)%.')), 0}
end

local function keep_permits(p, ttl)
  -- This attempt was given up before anything was granted, so the next client decides the kind of the object. The state expires
  -- when no late copy of a request can arrive any more.
  if not p.v then return redis.call('PEXPIRE', p.state, 120000) end
  keep_alive(p.state, p.queue, p.keep, ttl, p.now, p.v)
end
