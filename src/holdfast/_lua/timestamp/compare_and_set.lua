-- Set or delete the key of a timestamp lock if it has one of the expected values.
-- KEYS     the key
-- ARGV     new value, '' to delete the key; then the expected values
-- RETURNS  1 done | 0 the key has another value, or none: nothing was changed
-- SINCE    Redis 5
-- MODEL    models/timestamp.pml
--
-- Other clients send a plain GETSET and look at its reply. This script does the same, but keeps a value that has changed since
-- it was read. The first write of a release is DEL: a script may go on writing when memory is full if its first write needs none.
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
