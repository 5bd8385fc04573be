-- Notify all observers of an election, because its leader has gone.
-- KEYS     observers
-- ARGV     none
-- RETURNS  number of observers that were listed
-- SINCE    Redis 5
-- MODEL    models/election.pml
-- INCLUDE  shared/_notify
local listed = redis.pcall('ZCARD', KEYS[1])
if type(listed) == 'table' then return 0 end
tell(KEYS[1])
return listed
