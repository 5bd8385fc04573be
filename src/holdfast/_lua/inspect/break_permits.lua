-- Revoke permits from holders that a person has seen and named by their marks, as `break_lock` does for a lock.
-- KEYS     holders, state, queue
-- ARGV     name of the person, without blanks; marks of the holders, as `scan` returns them
-- RETURNS  {1, fence, 1 if one of them was notified, '+' if waiters got permits, or ''}
--                                             the permits that they still have are revoked; the same again for the same first
--                                             mark
--          {0}                                nobody holds permits
--          {NO_CLAIM}                         none of these holders has permits any more
--          WRONG_TYPE, OTHER_FORMAT and NO_NUMBER  as in lock/acquire; nothing was changed
-- SINCE    Redis 5
-- MODEL    models/permit.pml
--
-- The first write is ZREM: a script may go on writing when memory is full if its first write frees some.
-- CODES    NO_CLAIM BROKEN
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_inbox
-- INCLUDE  permit/_permits
local p, refusal = open_permits(KEYS[1], KEYS[2], KEYS[3], '')
if refusal then return refusal end
local marked, found = {}, {}
for i = 2, #ARGV do marked[ARGV[i]] = true end
local holders = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, token in ipairs(holders) do
  if marked[string.sub(redis.sha1hex(token), 1, 16)] then found[#found + 1] = token end
end
if #found == 0 or not p.v then
  local mark, before = string.match(redis.call('HGET', p.state, 'broken') or '', '^(%x+) (%d+)$')
  if mark == ARGV[2] and whole(before) then return {1, whole(before), 0, ''} end
  return {#holders == 0 and 0 or NO_CLAIM}
end

local told = 0
for _, token in ipairs(found) do
  remove(p, {token})
  p.dead = revoke(p.state, p.dead, token)
  local heard = publish(inbox_of(p.holders, token), BROKEN .. ' ' .. token .. ' ' .. ARGV[1])
  if type(heard) == 'number' and heard > 0 then told = 1 end
end
local fence = math.max(p.fence + 1, p.now)
p.fence = fence
redis.call('HSET', p.state, 'fence', fence, 'broken', ARGV[2] .. ' ' .. integer(fence))
keep_permits(p, 0)
if p.limit then serve(p, false) end
return {1, fence, told, p.fence > fence and '+' or ''}
