-- Replace the token of a held lock: the holder's by that of a ticket, or the ticket's by that of its redeemer.
-- KEYS     lock, state, queue; marker, if the lock has quarantine=
-- ARGV     token that holds the lock; token that replaces it; its lease in ms; end of the first one's lease (server ms), if that
--          is a ticket, else '0'; with a marker: the longest lease in ms
-- RETURNS  {1, first fence, last fence, end of the lease (server ms)}
--                                             the second holds it, for the full lease; the same again for the same two
--          {0}                                the lease of the first has expired
--          {NO_CLAIM}                         the first was replaced before: a ticket that is used up; or the second was
--                                             revoked: the request is a late copy of an abandoned one
--          {LOST}                             the first lost the lock before its lease expired, or it was broken
--          {QUARANTINED, ms}                  the server may have lost the holder, and grants nothing for ms
--          WRONG_TYPE, OTHER_FORMAT and NO_NUMBER  as in acquire; nothing was changed
-- SINCE    Redis 5
-- MODEL    models/ticket.pml
--
-- The giver's token is revoked in the same run, so that late copies of its requests have no effect, and a used ticket is
-- recognized. Waiters keep their places. The first write is PEXPIRE: a script may go on writing when memory is full if
-- its first write needs none.
-- CODES    NO_CLAIM QUARANTINED LOST
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
local lock, state, queue = KEYS[1], KEYS[2], KEYS[3]
local giver, heir, ttl, ends = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return refused(lock, holder) end
local fields, refusal = read_lock(state, heir)
if not fields then return refusal end
local dead, now = fields[2] or '', now_us()
local last = fields[1]

if holder == heir and last then
  extend(lock, ttl)
  keep_alive(state, queue, fields[4], ttl, now)
  return {1, last - BLOCK + 1, last, math.floor(now / 1000) + redis.call('PTTL', lock)}
end
if string.find(dead, heir, 1, true) then return {NO_CLAIM} end
local pause, denied
if KEYS[4] then
  -- INCLUDE  lock/_quarantine
  pause, denied = lock_quarantine(KEYS[4], tonumber(ARGV[#ARGV]), now)
end
if denied then return denied end
if pause then return {QUARANTINED, pause} end
if holder ~= giver then
  local broken = string.match(redis.call('HGET', state, 'broken') or '', '^%x+')
  if broken == string.sub(redis.sha1hex(giver), 1, 16) then return {LOST} end
  if string.find(dead, giver, 1, true) then return {NO_CLAIM} end
  return {now >= ends * 1000 and 0 or LOST}
end
-- A forged ticket may name the value of an ordinary key as its token. Such a value does not have the form of a token, or its
-- key has no state. (If only the state was lost, the token must have all its digits.)
local _, digits = string.match(giver, '^(%x[%x{}@]*)%.(%x+)~?$')
if ends > 0 and (not digits or (not last and #digits < 32)) then return {LOST} end
redis.call('PEXPIRE', lock, ttl)
revoke(state, dead, giver)
keep_alive(state, queue, fields[4], ttl, now)
local first
first, last = take(lock, state, heir, ttl, now, last)
return {1, first, last, math.floor(now / 1000) + ttl}
