-- Renew the leases of held locks to their full length. A lost lock is never created again.
-- KEYS     lock, state, queue of each lease, one after the other
-- ARGV     of each lease: token; lease in ms; number of this request, which rises with each renewal of the token
-- RETURNS  {answer, answer, ...}; an answer is
--          1 renewed | NOT_NEWEST held, but a later renewal arrived first, and counts | 0 the lock is gone |
--          NO_CLAIM the key has another value | TAKEN_AWAY a person has revoked it from this token (break)
-- SINCE    Redis 5
-- MODEL    models/lock_lease.pml
--
-- The first write is PEXPIRE: a script may go on writing when memory is full if its first write needs none.
-- CODES    NO_CLAIM TAKEN_AWAY NOT_NEWEST
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
local now = now_us()
local answers = {}

-- Return the reason why the token does not hold the lock. The holder trusts this reply, and no message, which may be forged.
local function missed(state, token, holder)
  local broken = redis.pcall('HMGET', state, 'broken')[1]
  local mark = broken and string.match(broken, '^%x+')
  if mark == string.sub(redis.sha1hex(token), 1, 16) then return TAKEN_AWAY end
  return holder and NO_CLAIM or 0
end

local function renew(lock, state, queue, token, ttl, number)
  local holder = redis.pcall('GET', lock)
  if holder ~= token then return missed(state, token, holder) end
  local fields = redis.pcall('HMGET', state, 'keep', 'renewed')
  local ours = not fields.err
  if ours and fields[2] then
    local who, last = string.match(fields[2], '^(%S+) (%d+)$')
    if who == token and whole(last, 0) > tonumber(number) then return NOT_NEWEST end
  end
  redis.call('PEXPIRE', lock, ttl)
  if ours then
    redis.call('HSET', state, 'v', '1', 'renewed', token .. ' ' .. number)
    keep_alive(state, queue, fields[1], tonumber(ttl), now)
  end
  return 1
end

for i = 3, #KEYS, 3 do
  answers[i / 3] = renew(KEYS[i - 2], KEYS[i - 1], KEYS[i], ARGV[i - 2], ARGV[i - 1], ARGV[i])
end
return answers
