-- Release a token's permits, and hand them over to the next waiters.
-- KEYS     holders, state, queue
-- ARGV     token; 'release': release the permits | 'leave': also remove the token's place in the queue | 'bury': do both, and
--          revoke the token
-- RETURNS  1 they were held until now | 0 they were not, or the lease had expired
-- SINCE    Redis 5
-- MODEL    models/permit.pml
--
-- The first write is ZREM: a script may go on writing when memory is full if its first write frees some.
local holders, state, queue = KEYS[1], KEYS[2], KEYS[3]
local token, mode = ARGV[1], ARGV[2]

-- Fast path: there is no queue. Nearly every run ends here.
if mode == 'release' and redis.call('EXISTS', queue) == 0 then
  local fields = redis.pcall('HMGET', state, 'used', 'h:' .. token)
  local used, many = tonumber(fields[1]), fields[2] and tonumber(string.match(fields[2], ' (%d+) '))
  if many and used and used >= many and used % 1 == 0 then
    if redis.call('ZREM', holders, token) == 0 then return 0 end
    redis.call('HDEL', state, 'h:' .. token)
    redis.call('HSET', state, 'used', used - many)
    return 1
  end
end

-- INCLUDE  shared/_state
-- INCLUDE  shared/_waiters
-- INCLUDE  permit/_permits
local p = open_permits(holders, state, queue, token)
if not p then return 0 end
local answer = 0
if redis.call('ZSCORE', p.holders, token) then
  remove(p, {token})
  answer = 1
end
if mode ~= 'release' then leave(p.state, p.queue, token) end
if mode == 'bury' then
  revoke(p.state, p.dead, token)
  keep_permits(p, 0)
end
if p.limit then serve(p, false) end
return answer
