-- Acquire a lock, with a fence that is greater than all before.
-- KEYS  lock, counter
-- ARGV  token, lease in ms
-- RETURNS  the fence, or 0 if the lock is held
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
return 0
