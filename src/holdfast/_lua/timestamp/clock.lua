-- Return the time of the server that has this key. In a Cluster, the plain command TIME would go to any server.
-- KEYS     the key
-- ARGV     ignored
-- RETURNS  {seconds, microseconds}, as TIME
-- SINCE    Redis 5
-- MODEL    models/timestamp.pml
return redis.call('TIME')
