-- Commands on keys of any kind, and their expiry.

local function delete(...)
  local count = 0
  for i = 1, select('#', ...) do
    local key = select(i, ...)
    if not key then break end
    if find(key) then
      db[key] = nil
      touch(key)
      count = count + 1
    end
  end
  return count
end
define('DEL', 1, INF, 'w', delete)
define('UNLINK', 1, INF, 'w', delete)

define('EXISTS', 1, INF, 'r', function(...)
  local count = 0
  for _, key in ipairs({...}) do
    if find(key) then count = count + 1 end
  end
  return count
end)

define('TYPE', 1, 1, 'r', function(key)
  local entry = find(key)
  return {ok = entry and entry.kind or 'none'}
end)

-- Expiry

local COMPATIBLE = 'ERR NX and XX, GT or LT options at the same time are not compatible'

-- Returns the options of EXPIRE and related commands as a set of NX, XX, GT, LT, or nil and the error.
local function conditions(...)
  local found = {}
  for _, option in ipairs({...}) do
    local name = upper(option)
    if name ~= 'NX' and name ~= 'XX' and name ~= 'GT' and name ~= 'LT' then
      return nil, 'ERR Unsupported option ' .. option
    end
    found[name] = true
  end
  if found.NX and (found.XX or found.GT or found.LT) then return nil, COMPATIBLE end
  if found.GT and found.LT then return nil, 'ERR GT and LT options at the same time are not compatible' end
  return found
end

local function expiry(name, unit, relative)
  define(name, 2, INF, 'w', function(key, text, option, ...)
    local asked, wrong
    if option then
      asked, wrong = conditions(option, ...)
      if wrong then return nil, wrong end
    end
    local n = integer(text)
    if not n then return nil, NOT_INTEGER end
    local at = n * unit + (relative and ms or 0)
    if at >= 9223372036854775808 or at < -9223372036854775808 then
      return nil, "ERR invalid expire time in '" .. name:lower() .. "' command"
    end
    local entry = find(key)
    if not entry then return 0 end
    if asked and ((asked.NX and entry.at ~= INF) or (asked.XX and entry.at == INF) or (asked.GT and at <= entry.at)
      or (asked.LT and at >= entry.at)) then
      return 0
    end
    if at <= ms then
      db[key] = nil
    else
      entry.at = at
    end
    touch(key)
    return 1
  end)
end
expiry('EXPIRE', 1000, true)
expiry('PEXPIRE', 1, true)
expiry('EXPIREAT', 1000, false)
expiry('PEXPIREAT', 1, false)

define('PERSIST', 1, 1, 'w', function(key)
  local entry = find(key)
  if not entry or entry.at == INF then return 0 end
  entry.at = INF
  touch(key)
  return 1
end)

-- Returns the expiry of a key, converted by `told`; -2: there is no such key, -1: the key has no expiry.
local function time_left(name, told)
  define(name, 1, 1, 'r', function(key)
    local entry = find(key)
    if not entry then return -2 end
    return entry.at == INF and -1 or told(entry.at)
  end)
end
time_left('PTTL', function(at) return at - ms end)
time_left('TTL', function(at) return math.floor((at - ms + 500) / 1000) end)
time_left('PEXPIRETIME', function(at) return at end)
time_left('EXPIRETIME', function(at) return math.floor((at + 500) / 1000) end)

-- The keyspace

-- Returns all keys that match a pattern, sorted.
local function matching(glob)
  local found, pattern = {}, glob ~= '*' and pattern_of(glob)
  for key, entry in pairs(db) do
    if entry.at >= ms and (not pattern or key:find(pattern)) then found[#found + 1] = key end
  end
  table.sort(found)
  return found
end

define('KEYS', 1, 1, 'r', matching)

define('SCAN', 1, INF, 'r', function(cursor, ...)
  if not cursor:find('^%d+$') then return nil, 'ERR invalid cursor' end
  local args, glob, kind = {...}, '*', nil
  for i = 1, #args, 2 do
    local option, value = upper(args[i]), args[i + 1]
    if not value then return nil, SYNTAX end
    if option == 'MATCH' then
      glob = value
    elseif option == 'TYPE' then
      kind = value:lower()
    elseif option == 'COUNT' then
      local n = integer(value)
      if not n then return nil, NOT_INTEGER end
      if n < 1 then return nil, SYNTAX end
    else
      return nil, SYNTAX
    end
  end
  local found = {}
  for _, key in ipairs(cursor == '0' and matching(glob) or {}) do
    if not kind or db[key].kind == kind then found[#found + 1] = key end
  end
  return {'0', found}
end)

define('DBSIZE', 0, 0, 'r', function() return #matching('*') end)

local function rename(key, new, only_if_free)
  local entry = find(key)
  if not entry then return nil, 'ERR no such key' end
  if only_if_free and find(new) then return 0 end
  db[key] = nil
  db[new] = entry
  touch(key)
  touch(new)
  return only_if_free and 1 or OK
end
define('RENAME', 2, 2, 'w', function(key, new) return rename(key, new, false) end)
define('RENAMENX', 2, 2, 'w', function(key, new) return rename(key, new, true) end)

local function flush_all(how)
  local mode = how and upper(how)
  if mode and mode ~= 'SYNC' and mode ~= 'ASYNC' then return nil, SYNTAX end
  flush()
  return OK
end
define('FLUSHALL', 0, 1, 'w', flush_all)
define('FLUSHDB', 0, 1, 'w', flush_all)
