-- Renew the leases of permits to their full length. Lost permits are never granted again.
-- KEYS     holders, state, queue of each lease, one after the other
-- ARGV     of each lease: token; lease in ms; number of this request, which rises with each renewal of the token
-- RETURNS  {answer, answer, ...}; an answer is
--          1 renewed | NOT_NEWEST held, but a later renewal arrived first, and counts | 0 they are gone |
--          TAKEN_AWAY a person has revoked them from this token (break)
-- SINCE    Redis 5
-- MODEL    models/permit.pml
--
-- The first write is PEXPIRE, or ZREM: a script may go on writing when memory is full if its first write needs none.
-- CODES    TAKEN_AWAY NOT_NEWEST
-- INCLUDE  permit/_permits
local answers = {}

-- Return the reason why the token holds no permits. The holder trusts this reply, and no message, which may be forged.
local function missed(p, token)
  return p and string.find(p.dead, token, 1, true) and redis.call('HMGET', p.state, 'broken')[1] and TAKEN_AWAY or 0
end

local function renew(holders, state, queue, token, ttl, number)
  local p = open_permits(holders, state, queue, token)
  if not p or not redis.call('ZSCORE', holders, token) then return missed(p, token) end
  local fence, permits, last = holding(state, token)
  if last and last > number then return NOT_NEWEST end
  redis.call('PEXPIRE', holders, math.max(ttl, redis.call('PTTL', holders)))
  extend_permits(p, token, ttl)
  if fence then  -- otherwise the state was lost
    note(p, token, fence, permits, number)
    keep_permits(p, ttl)
  end
  return 1
end

for i = 3, #KEYS, 3 do
  answers[i / 3] = renew(KEYS[i - 2], KEYS[i - 1], KEYS[i], ARGV[i - 2], tonumber(ARGV[i - 1]), tonumber(ARGV[i]))
end
return answers
