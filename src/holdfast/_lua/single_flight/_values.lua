-- Shared by the scripts of single flight: the format of a value, and the rules by which it is void.
--
-- value (string):    '1 <kind> <fence> <fresh> <kept> <cost> <tag> <tag>...', a newline, the data.
--                    fence: that of the load that stored it; fresh: end of its freshness (server ms); kept: ms for which it is
--                    kept after that; cost: us that the load took
-- fresh (string):    exists while the value is fresh, if the value is kept for longer. So a plain MGET is enough to read it
-- load (string):     token of the loader: an ordinary lock record; `state` is its state, shared by all keys of a group
-- state (hash):      of:<load> = fence of that load: only its value is stored, not one that the token loaded under an earlier
--                    lease; life = longest time (ms) from the fence of a value to the expiry of its key;
--                    floor = as the key floor: loads that began before this state was created count as void
-- floors (zset):     tag -> fence: a value with that tag and no higher fence is void; '' is a tag of every value
-- floor (string):    the highest of the floors, for the plain command. A server that is short of memory may evict any of these
--                    keys: the plain command does not count a value without a floor as fresh, and the value is void if the
--                    state has no floor either
-- MODEL    models/single_flight.pml
-- INCLUDE  shared/_parse

local FORMAT = '1'  -- format of values, as in the pattern below
local HEAD = 4096  -- maximum length of a value's first line, in bytes: its tags take 4,000

-- Return the parts of a value: kind, fence, end of freshness, cost, tags; nil if it has another format. The line is cut off
-- first, because a pattern that searches for its end takes time that grows with the square of a long row of digits.
local function parts(found)
  local head = string.sub(found, 1, HEAD)
  local ends = string.find(head, '\n', 1, true)
  if not ends then return nil end
  local kind, fence, fresh, cost, tags = string.match(string.sub(head, 1, ends - 1), '^1 (%l+) (%d+) (%d+) %d+ (%d+)(.*)$')
  fence, fresh, cost = whole(fence), whole(fresh), whole(cost)
  if not (fence and fresh and cost) then return nil end
  return kind, fence, fresh, cost, tags
end

-- Return whether a key is the only one of its group: then it has no tags, and the state need not outlive the value.
-- `key`: the key of its value or of its load.
local function is_alone(key)
  return string.find(string.sub(key, -7), '}:', 1, true) ~= nil
end

-- Return the highest floor. If its key was evicted or is not a number, restore it from the state first. Return nil if the
-- state has none either.
local function highest_floor(key, state, floor)
  if is_alone(key) then return 0 end
  local found = whole(redis.pcall('GETRANGE', floor, 0, 16))
  if found then return found end
  found = whole(redis.pcall('HGET', state, 'floor'))
  if found then redis.pcall('SET', floor, found, 'PX', math.max(1, redis.call('PTTL', state))) end
  return found
end

-- Return whether a value or load with this fence and these tags was invalidated. If the server has evicted the floors of the
-- tags, the highest floor counts for all.
local function void(floors, floor, fence, tags)
  if redis.call('EXISTS', floors) == 0 then return whole(redis.pcall('GETRANGE', floor, 0, 16), 0) >= fence end
  local function below(tag)
    local score = redis.pcall('ZSCORE', floors, tag)
    return score and whole(score, math.huge) >= fence
  end
  if below('') then return true end
  for tag in string.gmatch(tags, '%S+') do
    if below(tag) then return true end
  end
  return false
end
