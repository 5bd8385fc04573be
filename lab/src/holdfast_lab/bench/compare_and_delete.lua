-- Release the simplest lock (redis.io, "Distributed Locks with Redis"), which is a lower bound in the benchmarks.
-- KEYS     lock
-- ARGV     token
-- RETURNS  1 deleted | 0 the lock has another token, or is free
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
