-- Set the lease of a held lock to its full length again. Never creates: what is lost stays lost.
-- KEYS     lock, state, queue
-- ARGV     token; lease in ms; ms to keep the side keys
-- RETURNS  1 renewed | 0 the lock is gone | -1 somebody else's value is there
-- SINCE    Redis 5
local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
  return 1
end
return holder and -1 or 0
