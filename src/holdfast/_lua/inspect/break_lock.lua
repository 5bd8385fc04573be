-- Break a lock: revoke it from the holder that a person has seen and named by its mark.
-- KEYS     lock, state, queue, listeners; marker, on a server that may have one
-- ARGV     mark of the holder, as `scan` returns it; name of the person, without blanks
-- RETURNS  {1, fence, 1 if the holder was notified, process that the lock was handed over to, or ''}
--                                             revoked: the holder's fences are below this one, later ones above; the same reply
--                                             again for the same mark
--          {0}                                nobody holds the lock
--          {NO_CLAIM}                         another token holds the lock
--          WRONG_TYPE, OTHER_FORMAT and NO_NUMBER  as in lock/acquire; nothing was changed
-- SINCE    Redis 5
-- MODEL    models/lock_handover.pml
--
-- The former holder is notified: 'BROKEN <token> <by whom>' in its inbox. Its token is revoked, because otherwise a late copy
-- of the request that acquired the lock might acquire it again. The first write is DEL: a script may go on writing when memory
-- is full if its first write frees some.
-- CODES    NO_CLAIM BROKEN
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_notify
-- INCLUDE  shared/_marker
-- INCLUDE  lock/_handover

local lock, state, queue, listeners, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- Return whether a free lock may be handed over although its waiters may have asked for quarantine=. The caller does not know
-- the options of the lock, so nothing is handed over while the marker does not show that the quarantine is over.
local function may_grant(now)
  if not marker then return true end
  local fields = redis.pcall('HMGET', marker, 'run', 'since', 'lease')
  if fields.err then return false end
  local run, since, lease = fields[1], whole(fields[2]), whole(fields[3])
  if not run then return true end  -- no client of this server uses quarantine=
  local info = redis.pcall('INFO', 'server')  -- if access control refuses it, waiters ask by themselves within a second
  local same = type(info) == 'string' and string.find(info, 'run_id:' .. run .. '\r', 1, true)
  return same and since and lease and ends_in(since, lease, math.floor(now / 1000)) <= 0
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields, refusal = read_lock(state, holder or '')
if not fields then return refusal end
local waiters = redis.pcall('ZCARD', queue)
if type(waiters) == 'table' then return refused(queue, waiters) end
local mark, fence = string.match(redis.call('HGET', state, 'broken') or '', '^(%x+) (%d+)$')
if mark == ARGV[1] and whole(fence) then return {1, whole(fence), 0, ''} end
if not holder then return {0} end
if string.sub(redis.sha1hex(holder), 1, 16) ~= ARGV[1] then return {NO_CLAIM} end

local now = now_us()
local process = string.match(holder, '^(%x[%x{}@]*)%.%x+[~*]?%d*$')
fence = math.max((fields[1] or 0) + 1, now)
redis.call('DEL', lock)
redis.call('HSET', state, 'fence', fence, 'broken', ARGV[1] .. ' ' .. integer(fence))
if process then revoke(state, fields[2], holder) end
keep_alive(state, queue, fields[4], 0, now)
local heard = process and publish(inbox_of(lock, holder), BROKEN .. ' ' .. holder .. ' ' .. ARGV[2])
local heir
-- In a quarantine nothing is handed over, and waiters know when it ends.
if waiters > 0 and may_grant(now) then
  heir = hand_over(lock, state, queue, now, false, fence)
end
for _, listener in ipairs(redis.call('ZRANGE', listeners, 0, 99)) do
  notify(lock, listener)
end
return {1, fence, type(heard) == 'number' and heard > 0 and 1 or 0, short(heir and string.match(heir, '^[^.]+'))}
