-- Change the key of a timestamp lock, or delete it, if what stands there is one's own.
-- KEYS     the key
-- ARGV     new value, '' to delete the key; then the values that are one's own
-- RETURNS  1 done | 0 another value is there, or none: nothing was changed
-- SINCE    Redis 5
-- MODEL    models/timestamp.pml
--
-- The first write of a release is DEL: a script may go on writing when memory is full if its first write needs none.
local found = redis.call('GET', KEYS[1])
for i = 2, #ARGV do
  if found == ARGV[i] then
    if ARGV[1] == '' then
      redis.call('DEL', KEYS[1])
    else
      redis.call('SET', KEYS[1], ARGV[1])
    end
    return 1
  end
end
return 0
