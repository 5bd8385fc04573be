-- Declare a server new: it has granted nothing that it could have forgotten, and votes at once.
-- KEYS     marker
-- ARGV     longest lease in ms; digest of the list of servers; '1' to replace what was agreed on before, else '0'
-- RETURNS  {1} declared | {0} it votes already | {-6, ms} and {-7, digest} another longest lease, or list, was agreed on
-- SINCE    Redis 5
-- MODEL    models/amnesia.pml
-- INCLUDE  _state
-- INCLUDE  _marker
local longest, servers = tonumber(ARGV[1]), ARGV[2]
if ARGV[3] == '1' then redis.call('DEL', KEYS[1]) end
local run, refusal = quarantine(KEYS[1], longest, servers, now_us())
if not refusal then return {0} end
if refusal[1] ~= -5 then return refusal end
redis.call('HSET', KEYS[1], 'run', run, 'since', 0, 'lease', longest, 'servers', servers)
return {1}
