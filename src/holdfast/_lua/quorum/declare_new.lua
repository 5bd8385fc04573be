-- Declare a server new, so that it votes at once: it has granted nothing that it could have lost.
-- KEYS     marker
-- ARGV     longest lease in ms; digest of the list of servers; '?' only look | '0' declare it | '1' declare it, whatever was
--          agreed on before | '+' drop what was agreed on, and vote when the longest lease has passed
-- RETURNS  {1} declared | {0} it votes already | {NEW_SERVER} it is new, or has lost all its data
--          {QUARANTINED, ms} it may have lost its votes, and votes again in so many ms
--          {OTHER_LEASE, ms} and {OTHER_SERVERS, digest} another longest lease, or list, was agreed on
-- SINCE    Redis 5
-- MODEL    models/quorum_amnesia.pml
-- CODES    QUARANTINED NEW_SERVER
-- INCLUDE  shared/_state
-- INCLUDE  shared/_marker
local marker, longest, servers, what = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
if what == '?' and redis.call('HGET', marker, 'run') ~= run_id() then return {NEW_SERVER} end  -- only looks: writes nothing
if what == '1' or what == '+' then redis.call('DEL', marker) end
local run, refusal = quarantine(marker, longest, servers, now_us())
if not refusal then return {0} end
if refusal[1] ~= QUARANTINED or what == '?' or what == '+' then return refusal end
redis.call('HSET', marker, 'run', run, 'since', 0, 'lease', longest, 'servers', servers)
return {1}
