-- Shared by the scripts of single flight: what a value is, and when it is void.
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
-- MODEL    models/flight.pml
-- INCLUDE  shared/_parse

local FORMAT = '1'  -- of values, as in the pattern below
local HEAD = 4096  -- bytes of a value's first line, at most: its tags take 4,000

-- Parts of a value: kind, fence, until when it is fresh, cost, tags; nil if it has another format. The line is cut off first: a
-- pattern that looks for its end tries all ways to get there, and of a long row of digits there are as many as its length squared.
local function parts(found)
  local head = string.sub(found, 1, HEAD)
  local ends = string.find(head, '\n', 1, true)
  if not ends then return nil end
  local kind, fence, fresh, cost, tags = string.match(string.sub(head, 1, ends - 1), '^1 (%l+) (%d+) (%d+) %d+ (%d+)(.*)$')
  fence, fresh, cost = whole(fence), whole(fresh), whole(cost)
  if not (fence and fresh and cost) then return nil end
  return kind, fence, fresh, cost, tags
end

-- A group of one key knows no tags, and its state need not outlive its value. `key`: of its value, or of its load.
local function is_alone(key)
  return string.find(string.sub(key, -7), '}:', 1, true) ~= nil
end

-- The highest floor, put back where it was thrown away alone, or is no number; nil if with it went what is known of tags.
local function highest_floor(key, state, floor)
  if is_alone(key) then return 0 end
  local found = whole(redis.pcall('GETRANGE', floor, 0, 16))
  if found then return found end
  found = whole(redis.pcall('HGET', state, 'floor'))
  if found then redis.pcall('SET', floor, found, 'PX', math.max(1, redis.call('PTTL', state))) end
  return found
end

-- Whether a value or load of this fence, with these tags, was invalidated. If memory is short, the server may have thrown away
-- what it knows of tags: then all count.
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
