-- Write to a key only if no holder with a higher fence has written before (fence check).
-- KEYS     key, the key that remembers the highest fence seen
-- ARGV     fence; ms to remember it; then, if a value is to be written, the value and its expiry in ms ('' for none)
-- RETURNS  1 accepted | 0 refused: a holder with a higher fence has written
--          {NO_NUMBER, key, '', text}: the stored fence is not a number; nothing was written
-- SINCE    Redis 5
-- MODEL    models/lock_lease.pml
-- CODES    NO_NUMBER
-- INCLUDE  shared/_parse
local text = redis.call('GET', KEYS[2])
local seen = whole(text or 0)
if not seen then return {NO_NUMBER, KEYS[2], '', string.sub(text, 1, 40)} end
if seen > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
if ARGV[4] == '' then
  redis.call('SET', KEYS[1], ARGV[3])
elseif ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
return 1
