-- Shared by the scripts of permits, of which there are a number, and of which each holder has some: semaphores and read-write
-- locks. The holders of permits, and the direct hand-over to waiters.
--
-- holders (zset):  token -> until when (server ms) its permits count. A token ends in '*' and how many it wants.
-- state (hash):    as a lock's, but v = 'semaphore 1' or 'rwlock 1', and besides: limit = how many there are,
--                  was = how many there have ever been, used = how many are held,
--                  h:<token> = fence, number of permits and number of the last renewal of a holder
-- queue (zset):    as a lock's
-- MODEL    models/permits.pml
-- CODES    OTHER_FORMAT GRANTED
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_waiters

local function wanted(token)
  return whole(string.match(token, '%*(%d+)$'))
end

-- The permits of this holder: fence, number of permits, number of the last renewal; nil if it is no holder, or nobody can tell what it has.
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

-- They hold nothing any more. The first write frees memory: a script may go on writing then if it is full. Many at once cost
-- hardly more than one.
local function remove(p, tokens)
  local fields = {}
  for i, token in ipairs(tokens) do fields[i] = 'h:' .. token end
  local notes = redis.call('HMGET', p.state, unpack(fields))
  redis.call('ZREM', p.holders, unpack(tokens))
  redis.call('HDEL', p.state, unpack(fields))
  p.left = nil  -- the key may be gone, and its expiry with it
  for i, token in ipairs(tokens) do
    local permits = whole(string.match(notes[i] or '', ' (%d+) ')) or wanted(token) or 0
    p.used = math.max(0, p.used - permits)
  end
  if p.v then redis.call('HSET', p.state, 'used', p.used) end
end

-- Removes those whose time is over: all of them, or who asks once would be told that nothing is free. There may be thousands, where
-- many have crashed at the same time; some nine thousand in a run is the end of it, for others want the server, too.
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

-- Reads who holds what, and removes those whose time is over: {holders, state, queue, now (us), and the fields of state}, or nil and
-- the refusal to return. Both, where its numbers are none: what is held can be renewed and given back, and nothing is granted.
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
  if count == 0 and whole(fields[7] or 0) ~= 0 then  -- the leases of all holders have ended, and the key with them
    for _, field in ipairs(redis.call('HKEYS', state)) do
      if string.sub(field, 1, 2) == 'h:' then redis.call('HDEL', state, field) end
    end
    redis.call('HSET', state, 'used', 0)
  end
  if not p.used then  -- the state has been lost, and they have not
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

-- Gives a token what it wants, for `ttl`. Answers its fence. Only where the state is there, or is kept by the caller.
local function admit(p, token, ttl)
  p.fence = math.max(p.fence + 1, p.now)
  p.used = p.used + wanted(token)
  note(p, token, p.fence, wanted(token), 0)
  extend_permits(p, token, ttl)
  return p.fence
end

-- The fence of a holder, whose lease is `ttl` again; nil if it is none. Never less than it was: this may be a late copy.
local function confirm(p, token, ttl)
  local until_ms = redis.call('ZSCORE', p.holders, token)
  if not until_ms then return nil end
  local fence = holding(p.state, token)
  if not fence then  -- the state has been lost
    remove(p, {token})
    return admit(p, token, ttl)
  end
  if until_ms - p.now_ms < ttl then extend_permits(p, token, ttl) end
  return fence
end

-- Until when the places of these waiters count.
local function places_of(p, line)
  local fields = {}
  for i, token in ipairs(line) do fields[i] = 'at:' .. token end
  return fields[1] and redis.call('HMGET', p.state, unpack(fields)) or {}
end

-- Their places are gone. Many at once, as when a writer makes way for readers, cost hardly more than one.
local function leave_all(p, tokens)
  if not tokens[1] then return end
  local fields = {}
  for i, token in ipairs(tokens) do fields[i] = 'at:' .. token end
  redis.call('ZREM', p.queue, unpack(tokens))
  redis.call('HDEL', p.state, unpack(fields))
end

-- Gives what is free to who waits, in order. Answers the fence of `me` (the caller, or false), which is served for `ttl`, if its
-- turn has come; and whether somebody is left before whom nobody may go. A waiter whose process does not listen just now, or has
-- given no sign of life for as long as a claim counts, is passed over, but keeps its place until its deadline. One run looks at a
-- thousand places, and removes or serves a hundred at most: others want the server, too.
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
      if at <= p.now_ms or not many or many > p.limit then  -- or it wants more than there are since their number was changed
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
        -- Refused by access control: it listens, and looks within a second. Passed over, it could wait for ever.
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

-- The answer to a waiter, as for a lock: {0, ms until the first lease of the holders ends, last fence, its process, 0}.
local function waiting_for(p)
  local first = redis.call('ZRANGE', p.holders, 0, 0, 'WITHSCORES')
  if not first[1] then return {0, CLAIM, p.fence, '', 0} end
  local left = math.min(MOST, math.max(0, math.ceil(first[2] - p.now_ms)))  -- a foreign score may be infinite, which is no reply
  return {0, left, p.fence, short(string.match(first[1], '^(%x[%x{}@]*)%.')), 0}
end

local function keep_permits(p, ttl)
  -- Given up before anybody had them: which kind it is to be, whoever comes next says. No copy comes after this time.
  if not p.v then return redis.call('PEXPIRE', p.state, 120000) end
  keep_alive(p.state, p.queue, p.keep, ttl, p.now, p.v)
end
