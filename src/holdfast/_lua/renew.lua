-- Set the lease of a held lock to its full length again. Never creates: what is lost stays lost.
-- KEYS     lock, state, queue
-- ARGV     token; lease in ms
-- RETURNS  1 renewed | 0 the lock is gone | -1 somebody else's value is there
-- SINCE    Redis 5
-- INCLUDE  _queue
local holder = redis.pcall('GET', KEYS[1])
if holder ~= ARGV[1] then return holder and -1 or 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local kept = redis.pcall('HGET', KEYS[2], 'keep')
if type(kept) ~= 'table' then
  keep_alive(KEYS[2], KEYS[3], kept, tonumber(ARGV[2]), now_us())
end
return 1
