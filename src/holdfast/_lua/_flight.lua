-- Shared by the scripts of single flight: what a value is, and when it is void. Stands behind _state.
--
-- value (string):    '1 <kind> <fence> <fresh> <kept> <cost> <tag> <tag>...', a newline, the data. Fence of the load that stored
--                    it; until when (server ms) it is fresh; for how long (ms) it is kept beyond that; us that the load took
-- fresh (string):    there while the value is fresh, beside one that is kept for longer: a plain MGET sees all it needs
-- load (string):     token of who loads: an ordinary lock record, and state is its state, of all keys of a group
-- state (hash):      of:<load> = fence of that load: it alone is stored, not what the same token has loaded under an earlier lease;
--                    life = longest time (ms) from the fence of a value to the end of its key;
--                    floor = as floor: what was begun before this state was made, or made anew, counts as void
-- floors (zset):     tag -> fence: what has that tag and no higher fence is void; '' is every value's tag
-- floor (string):    the highest of them, for the plain command. A server whose memory is short may throw away each of these:
--                    a value without a floor is not fresh at first glance, and void if the state knows none either
-- MODEL              models/flight.pml

-- Parts of a value: kind, fence, until when it is fresh, cost, tags; nil if it has another format.
local function parts(found)
  return string.match(found, '^1 (%l+) (%d+) (%d+) %d+ (%d+)([^\n]*)\n')
end

-- A group of one key knows no tags, and its state need not outlive its value.
local function is_alone(value)
  return string.sub(value, -7) == '}:value'
end

-- The highest floor, put back where it was thrown away alone; nil if with it went what is known of tags.
local function highest_floor(value, state, floor)
  if is_alone(value) then return 0 end
  local found = redis.call('GET', floor)
  if found then return tonumber(found) end
  found = redis.pcall('HGET', state, 'floor')
  if type(found) ~= 'string' then return nil end
  redis.pcall('SET', floor, found, 'PX', math.max(1, redis.call('PTTL', state)))
  return tonumber(found)
end

-- Whether a value or load of this fence, with these tags, was invalidated. Where memory is short, the server may have thrown away
-- what it knows of tags: then all count.
local function void(floors, floor, fence, tags)
  if redis.call('EXISTS', floors) == 0 then return tonumber(redis.call('GET', floor) or 0) >= fence end
  if tonumber(redis.call('ZSCORE', floors, '') or 0) >= fence then return true end
  for tag in string.gmatch(tags, '%S+') do
    if tonumber(redis.call('ZSCORE', floors, tag) or 0) >= fence then return true end
  end
  return false
end
