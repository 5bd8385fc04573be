-- Change the key of a timestamp lock, or delete it, if what stands there is what it is said to be.
-- KEYS     the key
-- ARGV     new value, '' to delete the key; then the values one of which is to be there
-- RETURNS  1 done | 0 another value is there, or none: nothing was changed
-- SINCE    Redis 5
-- MODEL    models/timestamp.pml
--
-- GETSET as those do who look at the answer only: here nothing is written over that has changed since it was read. The first
-- write of a release is DEL: a script may go on writing when memory is full if its first write needs none.
local found = redis.call('GET', KEYS[1])
for i = 2, #ARGV do
  if found == ARGV[i] then
    if ARGV[1] == '' then
      redis.call('DEL', KEYS[1])
    else
      redis.call('GETSET', KEYS[1], ARGV[1])
    end
    return 1
  end
end
return 0
