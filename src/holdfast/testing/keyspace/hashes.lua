-- Commands on hashes and sets: a table of members, and their number. Commands that list members return them sorted.

-- Returns the entry of a key, and creates it if it is missing.
local function open(key, kind)
  local entry, wrong = typed(key, kind)
  if not entry and not wrong then
    entry = {kind = kind, value = {}, n = 0, at = INF}
    db[key] = entry
  end
  return entry, wrong
end

-- Removes members, and the key if none is left. Returns how many of them existed.
local function remove(key, kind, ...)
  local entry, wrong = typed(key, kind)
  if not entry then
    if wrong then return nil, wrong end
    return 0
  end
  local value, count = entry.value, 0
  for i = 1, select('#', ...) do
    local member = select(i, ...)
    if not member then break end
    if value[member] then
      value[member] = nil
      count = count + 1
    end
  end
  if count > 0 then
    entry.n = entry.n - count
    if entry.n == 0 then db[key] = nil end
    touch(key)
  end
  return count
end

local function size(key, kind)
  local entry, wrong = typed(key, kind)
  if wrong then return nil, wrong end
  return entry and entry.n or 0
end

local function contains(key, kind, member)
  local entry, wrong = typed(key, kind)
  if wrong then return nil, wrong end
  return entry and entry.value[member] and 1 or 0
end

local function members(key, kind)
  local entry, wrong = typed(key, kind)
  if wrong then return nil, wrong end
  local found = {}
  for member in pairs(entry and entry.value or found) do found[#found + 1] = member end
  table.sort(found)
  return found, nil, entry
end

-- Hashes

define('HSTRLEN', 2, 2, 'r', function(key, field)
  local entry, wrong = typed(key, 'hash')
  if wrong then return nil, wrong end
  return #(entry and entry.value[field] or '')
end)

define('HGET', 2, 2, 'r', function(key, field)
  local entry, wrong = typed(key, 'hash')
  if wrong then return nil, wrong end
  return entry and entry.value[field] or false
end)

define('HMGET', 2, INF, 'r', function(key, ...)
  local entry, wrong = typed(key, 'hash')
  if wrong then return nil, wrong end
  local found = {...}
  local value = entry and entry.value
  for i = 1, #found do
    found[i] = value and value[found[i]] or false
  end
  return found
end)

local function hset(name, key, ...)
  local args = {...}
  if #args % 2 == 1 then return nil, "ERR wrong number of arguments for '" .. name .. "' command" end
  local entry, wrong = open(key, 'hash')
  if wrong then return nil, wrong end
  local value, new = entry.value, 0
  for i = 1, #args, 2 do
    local field = args[i]
    if not value[field] then new = new + 1 end
    value[field] = args[i + 1]
  end
  entry.n = entry.n + new
  touch(key)
  return new
end

define('HSET', 3, INF, 'm', function(key, field, text, more, ...)
  if more then return hset('hset', key, field, text, more, ...) end
  local entry, wrong = open(key, 'hash')
  if wrong then return nil, wrong end
  local value, new = entry.value, 0
  if not value[field] then
    new = 1
    entry.n = entry.n + 1
  end
  value[field] = text
  touch(key)
  return new
end)

define('HMSET', 3, INF, 'm', function(...)
  local _, wrong = hset('hmset', ...)
  if wrong then return nil, wrong end
  return OK
end)

define('HSETNX', 3, 3, 'm', function(key, field, text)
  local there, wrong = contains(key, 'hash', field)
  if wrong then return nil, wrong end
  return there == 1 and 0 or hset('hsetnx', key, field, text)
end)

define('HDEL', 2, INF, 'w', function(key, ...) return remove(key, 'hash', ...) end)
define('HLEN', 1, 1, 'r', function(key) return size(key, 'hash') end)
define('HEXISTS', 2, 2, 'r', function(key, field) return contains(key, 'hash', field) end)
define('HKEYS', 1, 1, 'r', function(key)
  local found, wrong = members(key, 'hash')
  return found, wrong
end)

define('HVALS', 1, 1, 'r', function(key)
  local found, wrong, entry = members(key, 'hash')
  if wrong then return nil, wrong end
  for i = 1, #found do found[i] = entry.value[found[i]] end
  return found
end)

define('HGETALL', 1, 1, 'r', function(key)
  local fields, wrong, entry = members(key, 'hash')
  if wrong then return nil, wrong end
  local found = {}
  for i, field in ipairs(fields) do
    found[2 * i - 1], found[2 * i] = field, entry.value[field]
  end
  return found
end)

define('HINCRBY', 3, 3, 'm', function(key, field, by)
  by = integer(by)
  if not by then return nil, NOT_INTEGER end
  local entry, wrong = typed(key, 'hash')
  if wrong then return nil, wrong end
  local n = integer(entry and entry.value[field] or '0')
  if not n then return nil, 'ERR hash value is not an integer' end
  n = n + by
  if n > 9007199254740992 or n < -9007199254740992 then return nil, 'ERR increment or decrement would overflow' end
  hset('hincrby', key, field, digits(n))
  return n
end)

-- Sets

define('SADD', 2, INF, 'm', function(key, ...)
  local entry, wrong = open(key, 'set')
  if wrong then return nil, wrong end
  local value, new = entry.value, 0
  for _, member in ipairs({...}) do
    if not value[member] then
      value[member] = true
      new = new + 1
    end
  end
  entry.n = entry.n + new
  if new > 0 then touch(key) end
  return new
end)

define('SREM', 2, INF, 'w', function(key, ...) return remove(key, 'set', ...) end)
define('SCARD', 1, 1, 'r', function(key) return size(key, 'set') end)
define('SISMEMBER', 2, 2, 'r', function(key, member) return contains(key, 'set', member) end)
define('SMEMBERS', 1, 1, 'r', function(key)
  local found, wrong = members(key, 'set')
  return found, wrong
end)
