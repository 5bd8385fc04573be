-- Reduce the number of permits of a holder, as when the writer of a read-write lock becomes a reader.
-- KEYS     holders, state, queue
-- ARGV     token; number of permits that it keeps; its fence; lease in ms; then as in acquire: 'rwlock 1', and the limit
-- RETURNS  1 it has that number, or had fewer before | 0 the token is no holder
-- SINCE    Redis 5
-- MODEL    models/permit.pml
-- INCLUDE  permit/_permits
local token, permits = ARGV[1], tonumber(ARGV[2])
local p = open_permits(KEYS[1], KEYS[2], KEYS[3], token)
if not p or not redis.call('ZSCORE', p.holders, token) then return 0 end
local fence, had, number = holding(p.state, token)
if not fence then  -- the state was lost, and only the caller knows the fence
  fence, had, number = tonumber(ARGV[3]), wanted(token), 0
  p.fence = p.fence and math.max(p.fence, fence)
end
if permits < had then
  -- PEXPIRE comes first because memory may be full, as in renew. Its time is the lease at least: zero would delete the key.
  redis.call('PEXPIRE', p.holders, math.max(tonumber(ARGV[4]), redis.call('PTTL', p.holders)))
  p.used = p.used - had + permits
  if not p.limit then
    p.v, p.limit = ARGV[5], tonumber(ARGV[6])
    redis.call('HSET', p.state, 'v', p.v, 'limit', p.limit, 'was', ' ' .. ARGV[6] .. ' ')
  end
  note(p, token, fence, permits, number)
  keep_permits(p, tonumber(ARGV[4]))
  serve(p, false)
end
return 1
