-- Return the time of the server that has this key: in a Cluster, the command TIME alone would go to any of them.
-- KEYS     the key
-- ARGV     nothing is made of it
-- RETURNS  {seconds, microseconds}, as TIME
-- SINCE    Redis 5
-- MODEL    models/timestamp.pml
return redis.call('TIME')
