-- Acquire several locks at once: all of them, or none.
-- KEYS     lock, state, queue of each, one after the other
-- ARGV     token (as in acquire) and lease in ms of each
-- RETURNS  {first fence, last fence, first fence, last fence, ...}  all are held, each for its full lease; the same again for the
--                                                                   same tokens
--          {number of a lock, from 1}  none was acquired: another token holds that lock or waits for it, its keys have other
--                                      data, or its token was revoked
-- SINCE    Redis 5
-- MODEL    models/multilock.pml
--
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
local now, found, answer = now_us(), {}, {}
for i = 1, #KEYS / 3 do
  local token = ARGV[2 * i - 1]
  local holder = redis.pcall('GET', KEYS[3 * i - 2])
  local fields = read_lock(KEYS[3 * i - 1], token)
  local waiters = redis.pcall('ZCARD', KEYS[3 * i])
  local dead = not fields or (fields[2] and string.find(fields[2], token, 1, true))
  local mine = not dead and holder == token and fields[1]
  if dead or type(waiters) == 'table' or not (mine or (not holder and waiters == 0)) then return {i} end
  found[i] = {mine, fields}
end
for i = 1, #found do
  local lock, state, queue = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local token, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local mine, fields = found[i][1], found[i][2]
  keep_alive(state, queue, fields[4], ttl, now)
  if mine then
    extend(lock, ttl)
    answer[2 * i - 1], answer[2 * i] = fields[1] - BLOCK + 1, fields[1]
  else
    answer[2 * i - 1], answer[2 * i] = take(lock, state, token, ttl, now, fields[1])
  end
end
return answer
