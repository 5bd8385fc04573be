-- Acquire permits, or return how long to wait, or join the queue.
-- KEYS     holders, state, queue
-- ARGV     token, which ends in '*' and the number wanted; lease in ms; '1' to join the queue if too few are free (only with
--          a subscribed inbox), else '0'; 'semaphore 1' or 'rwlock 1'; the limit, '' if it must be set already
-- RETURNS  {1, fence, fence}                  held, for the full lease; the same again for the same token
--          {0, remaining ms, last fence, process of the holder whose lease ends first, 0}   busy
--          {NO_CLAIM}                         this token was revoked: the request is a late copy of an abandoned one
--          {WRONG_TYPE, key, type}            the key has other data; nothing was written
--          {OTHER_FORMAT, version}            another kind of object, or written by an incompatible release
--          {NO_NUMBER, key, field, text}      the field is not a number; nothing was granted
--          {OTHER_COUNT, limit}               another limit is set than the caller's; 0: none is set
--          {TOO_MANY, limit}                  more permits are wanted than the limit
-- SINCE    Redis 5
-- MODEL    models/permit.pml
-- INCLUDE  shared/_constants
local holders, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, ttl, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])

-- Fast path, as in lock/acquire: enough permits are free, there is no queue, and they were used lately.
if redis.call('EXISTS', queue) == 0 then
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep', 'limit', 'used')
  local first = redis.pcall('ZRANGE', holders, 0, 0, 'WITHSCORES')
  local dead, kept, many = fields[2], tonumber(fields[4]), tonumber(string.match(token, '%*(%d+)$'))
  local last, there = tonumber(fields[1]), tonumber(fields[5])
  local used = tonumber(fields[6]) or not first[1] and 0
  local agreed = fields[3] == ARGV[4] and fields[5] and (ARGV[5] == '' or ARGV[5] == fields[5]) and not first.err
  if agreed and kept and used and last and there and (first[1] or used == 0) and not (dead and string.find(dead, token, 1, true)) then
    local t = redis.call('TIME')
    local now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
    local left = kept - now_ms - 1000
    local late = first[1] and tonumber(first[2]) <= now_ms
    local sane = kept <= MOST and last <= MOST and not string.find(fields[1], '%D') and used >= 0 and there <= MOST
    if left > KEEP and left > 2 * ttl and not late and sane and used + many <= there then
      if redis.call('ZADD', holders, 'NX', now_ms + ttl, token) == 1 then
        local fence = math.max(last + 1, t[1] * 1000000 + t[2])
        redis.call('HSET', state, 'h:' .. token, string.format('%.0f %d 0', fence, many), 'fence', fence, 'used', used + many)
        if not first[1] or redis.call('PTTL', holders) < ttl then redis.call('PEXPIRE', holders, ttl) end
        return {1, fence, fence}
      end
    end
  end
end

-- CODES    NO_CLAIM OTHER_FORMAT OTHER_COUNT TOO_MANY
-- INCLUDE  shared/_state
-- INCLUDE  shared/_waiters
-- INCLUDE  permit/_permits
local p, refusal = open_permits(holders, state, queue, token)
if refusal then return refusal end
if p.v and p.v ~= ARGV[4] then return {OTHER_FORMAT, p.v} end
if string.find(p.dead, token, 1, true) then return {NO_CLAIM} end
local agreed = p.limit and (not limit or limit == p.limit or string.find(p.was, ' ' .. integer(limit) .. ' ', 1, true))
if not agreed and (p.limit or not limit) then return {OTHER_COUNT, p.limit or 0} end
if not p.limit then
  p.limit, p.v = limit, ARGV[4]
  redis.call('HSET', p.state, 'v', p.v, 'limit', limit, 'was', ' ' .. integer(limit) .. ' ')
  keep_permits(p, ttl)  -- the new state gets its expiry at once, because access control may refuse a command below
end
if wanted(token) > p.limit then return {TOO_MANY, p.limit} end

local fence, blocked = confirm(p, token, ttl), false
if not fence then fence, blocked = serve(p, token, ttl) end
if not fence and not blocked and p.used + wanted(token) <= p.limit then
  if p.place then leave(p.state, p.queue, token) end
  fence = admit(p, token, ttl)
end
if fence then
  keep_permits(p, ttl)
  return {1, fence, fence}
end
if ARGV[3] == '1' then
  local tail = redis.call('ZRANGE', p.queue, -1, -1, 'WITHSCORES')
  redis.call('HSET', p.state, 'at:' .. token, p.now_ms + PLACE)
  redis.call('ZADD', p.queue, 'NX', math.max(p.now, (tonumber(tail[2]) or 0) + 1), token)
  keep_permits(p, ttl)
  if redis.call('PTTL', p.queue) == -1 then  -- this waiter has created the queue, without an expiry
    redis.call('PEXPIRE', p.queue, math.max(KEEP, redis.call('PTTL', p.state)))
  end
end
return waiting_for(p)
