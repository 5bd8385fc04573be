-- Commands on sorted sets (member -> score in `value`, the members in order in `line`) and on lists.
local insert, remove = table.insert, table.remove
local NOT_FLOAT = 'ERR value is not a valid float'

local function number(text)
  local word = text:lower():gsub('^%+', '')
  if word == 'inf' or word == 'infinity' then return INF end
  if word == '-inf' or word == '-infinity' then return -INF end
  if not text:find('^[%+%-]?%.?%d') then return nil end
  local n = tonumber(text)
  return n == n and n or nil
end

local function score_text(score)
  if score == INF then return 'inf' end
  if score == -INF then return '-inf' end
  return digits(score)
end

-- Sorted sets

-- Returns the index of a member with this score in `line`, or the index at which it would be inserted.
local function place(entry, member, score)
  local line, value = entry.line, entry.value
  local low, high = 1, #line + 1
  if high > 1 then
    local last = line[high - 1]
    if value[last] < score or (value[last] == score and last < member) then return high end
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = line[middle]
    local its = value[other]
    if its < score or (its == score and other < member) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function drop(entry, member)
  remove(entry.line, place(entry, member, entry.value[member]))
  entry.value[member] = nil
end

local function put(entry, member, score)
  if entry.value[member] then drop(entry, member) end
  insert(entry.line, place(entry, member, score), member)
  entry.value[member] = score
end

local function gone_if_empty(key, entry)
  if not entry.line[1] then db[key] = nil end
  touch(key)
end

-- Parses the options of ZADD: returns a set of them and the position of the first score, or nil and the error.
local function zadd_options(args)
  local asked, i = {}, 1
  while args[i] do
    local option = upper(args[i])
    if option ~= 'NX' and option ~= 'XX' and option ~= 'GT' and option ~= 'LT' and option ~= 'CH' then break end
    asked[option] = true
    i = i + 1
  end
  local count = #args - i + 1
  if count == 0 or count % 2 == 1 then return nil, SYNTAX end
  if asked.NX and asked.XX then return nil, 'ERR XX and NX options at the same time are not compatible' end
  if (asked.GT and asked.NX) or (asked.LT and asked.NX) or (asked.GT and asked.LT) then
    return nil, 'ERR GT, LT, and/or NX options at the same time are not compatible'
  end
  return asked, nil, i
end

define('ZADD', 3, INF, 'm', function(key, ...)
  local args = {...}
  local asked, wrong, first = zadd_options(args)
  if wrong then return nil, wrong end
  for i = first, #args, 2 do
    args[i] = number(args[i])
    if not args[i] then return nil, NOT_FLOAT end
  end
  local entry
  entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  if not entry then
    if asked.XX then return 0 end
    entry = {kind = 'zset', value = {}, line = {}, at = INF}
    db[key] = entry
  end
  local added, changed = 0, 0
  for i = first, #args, 2 do
    local score, member = args[i], args[i + 1]
    local before = entry.value[member]
    if before then
      if not asked.NX and score ~= before and not (asked.GT and score < before) and not (asked.LT and score > before) then
        put(entry, member, score)
        changed = changed + 1
      end
    elseif not asked.XX then
      put(entry, member, score)
      added = added + 1
    end
  end
  if added + changed > 0 then touch(key) end
  return asked.CH and added + changed or added
end)

define('ZREM', 2, INF, 'w', function(key, ...)
  local entry, wrong = typed(key, 'zset')
  if not entry then
    if wrong then return nil, wrong end
    return 0
  end
  local count = 0
  for i = 1, select('#', ...) do
    local member = select(i, ...)
    if not member then break end
    if entry.value[member] then
      drop(entry, member)
      count = count + 1
    end
  end
  if count > 0 then gone_if_empty(key, entry) end
  return count
end)

-- Converts the arguments `from` and `to` of ZRANGE to positions counted from one, in a list of this size. An empty range has
-- from > to.
local function bounds(from, to, size)
  if from < 0 then from = math.max(size + from, 0) end
  if to < 0 then to = size + to end
  return from + 1, math.min(to + 1, size)
end

-- Returns the members of `line` between two positions, with their scores if requested.
local function part(entry, from, to, with_scores)
  local found, n = {}, 0
  for i = from, to do
    local member = entry.line[i]
    n = n + 1
    found[n] = member
    if with_scores then
      n = n + 1
      found[n] = score_text(entry.value[member])
    end
  end
  return found
end

define('ZRANGE', 3, INF, 'r', function(key, from, to, option, more)
  if option and (upper(option) ~= 'WITHSCORES' or more) then return nil, SYNTAX end
  from, to = integer(from), integer(to)
  if not from or not to then return nil, NOT_INTEGER end
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  if not entry then return {} end
  from, to = bounds(from, to, #entry.line)
  return part(entry, from, to, option)
end)

-- Parses a bound of ZRANGEBYSCORE: returns the number, and whether the bound is exclusive.
local function border(text)
  local outside = text:sub(1, 1) == '('
  return number(outside and text:sub(2) or text), outside
end

-- Returns the positions in `line` between two scores, or nil and the error.
local function between(entry, min, max)
  local low, above = border(min)
  local high, below = border(max)
  if not low or not high then return nil, 'ERR min or max is not a float' end
  local from, to = 1, 0
  if entry then
    local line, value = entry.line, entry.value
    to = #line
    while from <= to and (value[line[from]] < low or (above and value[line[from]] == low)) do from = from + 1 end
    while to >= from and (value[line[to]] > high or (below and value[line[to]] == high)) do to = to - 1 end
  end
  return from, nil, to
end

define('ZRANGEBYSCORE', 3, INF, 'r', function(key, min, max, ...)
  local args, i, with_scores, offset, limit = {...}, 1, false, 0, -1
  while args[i] do
    local option = upper(args[i])
    if option == 'WITHSCORES' then
      with_scores, i = true, i + 1
    elseif option == 'LIMIT' and args[i + 2] then
      offset, limit, i = integer(args[i + 1]), integer(args[i + 2]), i + 3
      if not offset or not limit then return nil, NOT_INTEGER end
    else
      return nil, SYNTAX
    end
  end
  local _, bad = between(nil, min, max)
  if bad then return nil, bad end
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  local from, _, to = between(entry, min, max)
  if not entry or offset < 0 then return {} end
  from = from + offset
  if limit >= 0 then to = math.min(to, from + limit - 1) end
  return part(entry, from, to, with_scores)
end)

define('ZCOUNT', 3, 3, 'r', function(key, min, max)
  local _, bad = between(nil, min, max)
  if bad then return nil, bad end
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  local from, _, to = between(entry, min, max)
  return to - from + 1
end)

define('ZREMRANGEBYSCORE', 3, 3, 'w', function(key, min, max)
  local _, bad = between(nil, min, max)
  if bad then return nil, bad end
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  local from, _, to = between(entry, min, max)
  if to < from then return 0 end
  for _, member in ipairs(part(entry, from, to)) do drop(entry, member) end
  gone_if_empty(key, entry)
  return to - from + 1
end)

define('ZCARD', 1, 1, 'r', function(key)
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  return entry and #entry.line or 0
end)

define('ZSCORE', 2, 2, 'r', function(key, member)
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  local score = entry and entry.value[member]
  return score and score_text(score) or false
end)

define('ZRANK', 2, 2, 'r', function(key, member)
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  local score = entry and entry.value[member]
  return score and place(entry, member, score) - 1 or false
end)

-- Parses the number of items to pop (nil: one); returns it, or nil and the error.
local function how_many(text)
  local n = integer(text or '1')
  if not n or n < 0 then return nil, 'ERR value is out of range, must be positive' end
  return n
end

define('ZPOPMIN', 1, INF, 'w', function(key, text, more)
  if more then return nil, SYNTAX end
  local count, bad = how_many(text)
  if bad then return nil, bad end
  local entry, wrong = typed(key, 'zset')
  if wrong then return nil, wrong end
  if not entry or count == 0 then return {} end
  local found = part(entry, 1, math.min(count, #entry.line), true)
  for i = 1, #found, 2 do drop(entry, found[i]) end
  gone_if_empty(key, entry)
  return found
end)

-- Lists

local function push(name, at_front)
  define(name, 2, INF, 'm', function(key, ...)
    local entry, wrong = typed(key, 'list')
    if wrong then return nil, wrong end
    if not entry then
      entry = {kind = 'list', value = {}, at = INF}
      db[key] = entry
    end
    local items = entry.value
    for _, item in ipairs({...}) do
      insert(items, at_front and 1 or #items + 1, item)
    end
    touch(key)
    return #items
  end)
end
push('LPUSH', true)
push('RPUSH', false)

local function pop(name, at_front)
  define(name, 1, 2, 'w', function(key, text)
    local count, bad = how_many(text)
    if bad then return nil, bad end
    local entry, wrong = typed(key, 'list')
    if not entry then
      if wrong then return nil, wrong end
      return false
    end
    local found, items = {}, entry.value
    while #found < count and items[1] do
      found[#found + 1] = remove(items, at_front and 1 or #items)
    end
    if not items[1] then db[key] = nil end
    if found[1] then touch(key) end
    if text then return found end
    return found[1]
  end)
end
pop('LPOP', true)
pop('RPOP', false)

define('LLEN', 1, 1, 'r', function(key)
  local entry, wrong = typed(key, 'list')
  if wrong then return nil, wrong end
  return entry and #entry.value or 0
end)

define('LRANGE', 3, 3, 'r', function(key, from, to)
  from, to = integer(from), integer(to)
  if not from or not to then return nil, NOT_INTEGER end
  local entry, wrong = typed(key, 'list')
  if wrong then return nil, wrong end
  if not entry then return {} end
  from, to = bounds(from, to, #entry.value)
  return {unpack(entry.value, from, to)}
end)
