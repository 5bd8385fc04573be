-- Change or return the limit of permits. Holders keep their permits; waiters get the free ones.
-- KEYS     holders, state, queue
-- ARGV     'semaphore 1'; new limit, '' to ask for the present one; lease in ms: the limit is stored for at least this time
-- RETURNS  {1, limit, number held, number of waiters} | {0} no limit is set yet |
--          WRONG_TYPE, OTHER_FORMAT and NO_NUMBER as in acquire
-- SINCE    Redis 5
-- MODEL    models/permit.pml
-- CODES    OTHER_FORMAT
-- INCLUDE  shared/_state
-- INCLUDE  permit/_permits
local p, refusal = open_permits(KEYS[1], KEYS[2], KEYS[3], '')
if refusal then return refusal end
if p.v and p.v ~= ARGV[1] then return {OTHER_FORMAT, p.v} end
local limit = tonumber(ARGV[2])
if limit then
  local text = integer(limit) .. ' '
  local was = p.was == '' and ' ' or p.was
  if not string.find(was, ' ' .. text, 1, true) then was = string.sub(was .. text, -200) end
  if not string.find(was, '^ ') then was = string.gsub(was, '^%d+', '') end  -- the oldest limit was cut in two: drop its rest
  p.limit, p.v = limit, ARGV[1]
  redis.call('HSET', p.state, 'v', p.v, 'limit', limit, 'was', was)
  keep_permits(p, tonumber(ARGV[3]))
  serve(p, false)
end
if not p.limit then return {0} end
return {1, p.limit, p.used, redis.call('ZCARD', p.queue)}
