-- Hand a held lock on, in the place of giving it back: from its holder to a ticket, from a ticket to who redeems it.
-- KEYS     lock, state, queue; marker, if the lock has quarantine=
-- ARGV     token that has it; token that is to have it; lease of that in ms; when the first one's lease ends (server ms), if that
--          is a ticket, else '0'; the longest lease in ms, with a marker
-- RETURNS  {1, first fence, last fence, end of the lease (server ms)}
--                                             the second has it, for the full lease; the same again for the same two
--          {0}                                the first one's time is over
--          {NO_CLAIM}                         the first has handed it on before: a ticket that is used up; or the second was declared
--                                             dead: a late copy of a request given up long ago
--          {LOST}                             the first lost it before its time was over, or it was broken
--          {QUARANTINED, ms}                  the server may have forgotten who has it, and grants nothing for so long
--          WRONG_TYPE, OTHER_FORMAT and NO_NUMBER  as in acquire; nothing was changed
-- SINCE    Redis 5
-- MODEL    models/ticket.pml
--
-- The giver's token is revoked in the same run: no late copy of its requests does anything any more, and a ticket is
-- known for used. Those in line keep their places. The first write is PEXPIRE: a script may go on writing when memory is full if
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
-- A ticket may have been made up, with the value of an ordinary key for its token: that has not the form of a token, or no state
-- beside it. (The state alone may be lost: then a token has to have all its digits.)
local _, digits = string.match(giver, '^(%x[%x{}@]*)%.(%x+)~?$')
if ends > 0 and (not digits or (not last and #digits < 32)) then return {LOST} end
redis.call('PEXPIRE', lock, ttl)
bury(state, dead, giver)
keep_alive(state, queue, fields[4], ttl, now)
local first
first, last = take(lock, state, heir, ttl, now, last)
return {1, first, last, math.floor(now / 1000) + ttl}
