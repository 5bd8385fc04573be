-- Commands on strings.

local function put(key, value, at)
  db[key] = {kind = 'string', value = value, at = at or INF}
  touch(key)
end

define('GET', 1, 1, 'r', function(key)
  local entry = find(key)
  if not entry then return false end
  if entry.kind ~= 'string' then return nil, WRONGTYPE end
  return entry.value
end)

-- Parses an expiry given as `text` in this unit: returns the server time in ms, or nil and the error for command `name`.
local function moment(name, unit, text)
  local n = integer(text)
  if not n then return nil, NOT_INTEGER end
  local at = n
  if unit == 'EX' or unit == 'EXAT' then at = n * 1000 end
  if unit == 'EX' or unit == 'PX' then at = at + ms end
  if n <= 0 or at >= 9223372036854775808 then return nil, "ERR invalid expire time in '" .. name .. "' command" end
  return at
end

-- Parses the options of SET into {NX, XX, GET, KEEPTTL, unit, text}; returns nil for a syntax error.
local function options(...)
  local found, i = {}, 1
  local option = (...)
  while option do
    option = upper(option)
    if option == 'NX' or option == 'XX' then
      if found[option == 'NX' and 'XX' or 'NX'] then return nil end
      found[option] = true
    elseif option == 'GET' then
      found.GET = true
    elseif option == 'KEEPTTL' then
      if found.unit then return nil end
      found.KEEPTTL = true
    elseif option == 'EX' or option == 'PX' or option == 'EXAT' or option == 'PXAT' then
      i = i + 1
      found.text = select(i, ...)
      if found.unit or found.KEEPTTL or not found.text then return nil end
      found.unit = option
    else
      return nil
    end
    i = i + 1
    option = select(i, ...)
  end
  return found
end

define('SET', 2, INF, 'm', function(key, value, option, ...)
  if not option then
    put(key, value)
    return OK
  end
  if option == 'PX' and ... and not select(2, ...) then  -- the form that locks use: this path must be fast
    local at, wrong = moment('set', 'PX', (...))
    if wrong then return nil, wrong end
    put(key, value, at)
    return OK
  end
  local asked = options(option, ...)
  if not asked then return nil, SYNTAX end
  local at, wrong
  if asked.unit then
    at, wrong = moment('set', asked.unit, asked.text)
    if wrong then return nil, wrong end
  end
  local entry = find(key)
  if asked.GET and entry and entry.kind ~= 'string' then return nil, WRONGTYPE end
  local before = asked.GET and (entry and entry.value or false)
  if (asked.NX and entry) or (asked.XX and not entry) then return before or false end
  put(key, value, at or (asked.KEEPTTL and entry and entry.at))
  if asked.GET then return before end
  return OK
end)

define('SETNX', 2, 2, 'm', function(key, value)
  if find(key) then return 0 end
  put(key, value)
  return 1
end)

local function set_for(name, unit)
  define(name, 3, 3, 'm', function(key, text, value)
    local at, wrong = moment(name:lower(), unit, text)
    if wrong then return nil, wrong end
    put(key, value, at)
    return OK
  end)
end
set_for('SETEX', 'EX')
set_for('PSETEX', 'PX')

define('GETSET', 2, 2, 'm', function(key, value)
  local entry, wrong = typed(key, 'string')
  if wrong then return nil, wrong end
  put(key, value)
  return entry and entry.value or false
end)

define('GETDEL', 1, 1, 'w', function(key)
  local entry, wrong = typed(key, 'string')
  if not entry then
    if wrong then return nil, wrong end
    return false
  end
  db[key] = nil
  touch(key)
  return entry.value
end)

define('MGET', 1, INF, 'r', function(...)
  local found = {...}
  for i = 1, #found do
    local entry = find(found[i])
    found[i] = entry and entry.kind == 'string' and entry.value or false
  end
  return found
end)

define('MSET', 2, INF, 'm', function(...)
  local pairs_of = {...}
  if #pairs_of % 2 == 1 then return nil, "ERR wrong number of arguments for 'mset' command" end
  for i = 1, #pairs_of, 2 do put(pairs_of[i], pairs_of[i + 1]) end
  return OK
end)

define('APPEND', 2, 2, 'm', function(key, text)
  local entry, wrong = typed(key, 'string')
  if wrong then return nil, wrong end
  put(key, (entry and entry.value or '') .. text, entry and entry.at)
  return #db[key].value
end)

define('STRLEN', 1, 1, 'r', function(key)
  local entry, wrong = typed(key, 'string')
  if wrong then return nil, wrong end
  return entry and #entry.value or 0
end)

-- Both ends are counted from 0, or from the last byte (-1) backwards; the byte at the second end is included.
define('GETRANGE', 3, 3, 'r', function(key, from, to)
  local first, last = integer(from), integer(to)
  if not first or not last then return nil, NOT_INTEGER end
  local entry, wrong = typed(key, 'string')
  if wrong then return nil, wrong end
  local value = entry and entry.value or ''
  if first < 0 and last < 0 and first > last then return '' end
  if first < 0 then first = math.max(0, #value + first) end
  if last < 0 then last = math.max(0, #value + last) end
  return string.sub(value, first + 1, last + 1)
end)

-- Numbers are exact up to 2^53, like all numbers in a script.
local function add(key, by)
  if not by then return nil, NOT_INTEGER end
  local entry, wrong = typed(key, 'string')
  if wrong then return nil, wrong end
  local n = integer(entry and entry.value or '0')
  if not n then return nil, NOT_INTEGER end
  n = n + by
  if n > 9007199254740992 or n < -9007199254740992 then return nil, 'ERR increment or decrement would overflow' end
  put(key, digits(n), entry and entry.at)
  return n
end

define('INCR', 1, 1, 'm', function(key) return add(key, 1) end)
define('DECR', 1, 1, 'm', function(key) return add(key, -1) end)
define('INCRBY', 2, 2, 'm', function(key, by) return add(key, integer(by)) end)
define('DECRBY', 2, 2, 'm', function(key, by)
  local n = integer(by)
  return add(key, n and -n)
end)
