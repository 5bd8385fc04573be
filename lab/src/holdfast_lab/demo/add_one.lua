local number = tonumber(redis.call('GET', KEYS[1]) or 0)
redis.call('SET', KEYS[1], number + 1, 'PX', ARGV[1])
