-- Takes a lock and a number with it, greater than all before.
-- KEYS  lock, counter
-- ARGV  token, lease in ms
-- RETURNS  the number, or 0 if the lock is taken
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
return 0
