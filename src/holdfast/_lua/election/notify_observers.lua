-- The leader has gone: all observers are told to look.
-- KEYS     observers
-- ARGV     none
-- RETURNS  how many were told
-- SINCE    Redis 5
-- MODEL    models/election.pml
-- INCLUDE  shared/_notify
local listed = redis.pcall('ZCARD', KEYS[1])
if type(listed) == 'table' then return 0 end
tell(KEYS[1])
return listed
