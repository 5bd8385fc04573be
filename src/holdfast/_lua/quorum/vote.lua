-- Ask one server for its vote: grant the lock to a token if it is free here, else return how long to wait.
-- KEYS     lock, state, listeners, marker
-- ARGV     token; lease in ms; the fence that all servers are asked to issue (us; 0: this server's time); the longest lease in
--          ms; digest of the list of servers; id of the caller's subscription, to be notified when the lock is free, or ''; ms for which it
--          has waited; if the holder has used up its fences: how many more it wants, else '0'
-- RETURNS  {run id, 1, first fence, last fence, server time us, 1 if others wait for it}
--                                              granted, for the full lease; the same again for the same token, unless more are
--                                              wanted
--          {run id, 0, remaining ms, last fence, holder's process, mark of the holder, server time us}
--                                              busy; remaining -1: the holder's key has no expiry; 0: reserved for a
--                                              client that has waited longer
--          {run id, NO_CLAIM}                     this token was revoked
--          {run id, WRONG_TYPE, key, type}        the key has other data
--          {run id, OTHER_FORMAT, version}        written by an incompatible release
--          {run id, NO_NUMBER, key, field, text}  the field is not a number; nothing was written
--          {run id, QUARANTINED, ms}              this server may have lost its votes: it votes again in so many ms
--          {run id, OTHER_LEASE, ms}              another longest lease was agreed on
--          {run id, OTHER_SERVERS, digest}        another list of servers was agreed on
-- SINCE    Redis 5
-- MODEL    models/quorum_fence.pml
--
-- listeners (zset):  id of a subscription -> start of its wait (server us, computed from the client's own count). It only says
--                   whom to notify: nobody is granted the lock because of it. A new subscription notifies the holder's process,
--                   if that is not its own: 'WANTED <holder's token>' in the inbox of that process. In the state,
--                   next = '<id> <since> <until, server ms>': the client that was notified last that
--                   the lock is free. Until that time, no client that has waited less gets the lock; otherwise a holder that
--                   asks again at once would always be first. A client that has waited longer gets the lock whatever a server
--                   has chosen, so that the choices of several servers cannot block each other.
-- CODES    NO_CLAIM OTHER_FORMAT WANTED
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_marker
local lock, state, listeners, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, hint, listener = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[6]
local AHEAD = 2000000  -- us by which the callers may move the fence ahead of this server's clock
local now = now_us()

-- Issue `count` fences; return the first and the last.
local function issue(last, count)
  local first = math.max(last + 1, math.min(hint == 0 and now or hint, now + AHEAD))
  redis.call('HSET', state, 'fence', first + count - 1)
  return first, first + count - 1
end

local run, refusal = quarantine(marker, tonumber(ARGV[4]), ARGV[5], now)

-- Fast path: the lock is free, nobody has subscribed, and it was used lately. Nearly every run ends here.
if not refusal and redis.call('EXISTS', lock, listeners) == 0 then
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep', 'next')
  local last, dead, kept = whole(fields[1] or 0), fields[2], whole(fields[4])
  if fields[3] == '1' and last and kept and not fields[5] and not (dead and string.find(dead, token, 1, true)) then
    local left = kept - now / 1000
    if left > KEEP and left > 2 * ttl then
      local first
      first, last = issue(last, BLOCK)
      redis.call('SET', lock, token, 'PX', ttl)
      return {run, 1, first, last, now, 0}
    end
  end
end

local function others(key)
  local listening = redis.pcall('EXISTS', key)
  return type(listening) == 'number' and listening or 0
end

local function vote()
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return refused(lock, holder) end
  local fields = redis.pcall('HMGET', state, 'fence', 'dead', 'v', 'keep', 'next')
  if fields.err then return refused(state, fields) end
  if fields[3] and fields[3] ~= '1' then return {OTHER_FORMAT, short(fields[3])} end
  if fields[2] and string.find(fields[2], token, 1, true) then return {NO_CLAIM} end
  local last, since = whole(fields[1] or 0), now - tonumber(ARGV[7]) * 1000
  if not last then return no_number(state, 'fence', fields[1]) end
  local more = tonumber(ARGV[8])
  if holder == token and last > 0 and more == 0 then
    extend(lock, ttl)
    return {1, last - BLOCK + 1, last, now, others(listeners)}
  end

  local wanted, next_since, next_until = string.match(fields[5] or '', '^(%S+) (%d+) (%d+)$')
  local kept = wanted and wanted ~= listener and whole(next_until, 0) * 1000 > now and whole(next_since, 0) < since
  if (holder and holder ~= token) or kept then
    local process = string.match(holder or wanted, '^(%x[%x{}@]*)%.%x+~?$')
    if listener ~= '' then
      local new = redis.call('ZADD', listeners, since, listener)
      redis.call('PEXPIRE', listeners, KEEP)
      keep_alive(state, listeners, fields[4], ttl, now)
      if new == 1 and holder and process and process ~= string.match(token, '^[^.]+') then
        publish(inbox_of(lock, holder), WANTED .. ' ' .. holder)
      end
    end
    if not holder then return {0, 0, last, short(process), '', now} end
    return {0, redis.call('PTTL', lock), last, short(process), string.sub(redis.sha1hex(holder), 1, 12), now}
  end

  if wanted then redis.call('HDEL', state, 'next') end
  if listener ~= '' then redis.call('ZREM', listeners, listener) end
  keep_alive(state, listeners, fields[4], ttl, now)
  local first
  first, last = issue(last, math.max(BLOCK, more))
  if holder then extend(lock, ttl) else redis.call('SET', lock, token, 'PX', ttl) end
  return {1, first, last, now, others(listeners)}
end

local answer = refusal or vote()
if answer.err then return answer end
table.insert(answer, 1, run)
return answer
