-- Gives a lock back, if it is still the caller's.
-- KEYS  lock
-- ARGV  token
-- RETURNS  1, or 0 if it was not
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
