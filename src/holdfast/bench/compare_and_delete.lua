-- The release of the simplest lock there is (redis.io, "Distributed Locks with Redis"): the floor of the benchmarks.
-- KEYS     lock
-- ARGV     token
-- RETURNS  1 deleted | 0 it was not this token's
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
