-- Set the lease of a held lock to its full length again. Never creates: what is lost stays lost.
-- KEYS     lock, state, queue
-- ARGV     token; lease in ms; number of this request, rising with each that is made for the token
-- RETURNS  1 renewed | 2 held, but a later request has overtaken this one, and counts | 0 the lock is gone | -1 somebody else's value is there
-- SINCE    Redis 5
-- MODEL    models/lease.pml
-- INCLUDE  _queue
--
-- The first write is PEXPIRE: a script may go on writing when memory is full if its first write needs none.
local lock, state, queue, token, ttl, number = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local holder = redis.pcall('GET', lock)
if holder ~= token then return holder and -1 or 0 end
local fields = redis.pcall('HMGET', state, 'keep', 'renewed')
local ours = not fields.err
if ours and fields[2] then
  local who, last = string.match(fields[2], '^(%S+) (%d+)$')
  if who == token and tonumber(last) > tonumber(number) then return 2 end
end
redis.call('PEXPIRE', lock, ttl)
if ours then
  redis.call('HSET', state, 'v', '1', 'renewed', token .. ' ' .. number)
  keep_alive(state, queue, fields[1], tonumber(ttl), now_us())
end
return 1
