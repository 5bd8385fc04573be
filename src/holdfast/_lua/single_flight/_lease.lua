-- Shared by the scripts of single flight that grant a load.
-- MODEL    models/single_flight.pml
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  single_flight/_values

-- Grant the load to `token` and return its fence. `ours`: the token has the load already, so it keeps its fence. The caller has
-- called keep_alive. `last`: the last fence issued, if any.
local function lease_to(load, state, token, lease, now, last, ours)
  local fence = ours and whole(redis.call('HGET', state, 'of:' .. load))
  if fence then
    extend(load, lease)
    return fence
  end
  fence = take(load, state, token, lease, now, last)
  redis.call('HSET', state, 'of:' .. load, fence)
  if not is_alone(load) and not whole(redis.call('HGET', state, 'floor')) then
    redis.call('HSET', state, 'floor', fence - 1)
  end
  return fence
end
