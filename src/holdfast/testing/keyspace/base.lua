-- Parts that all other files use: the running call, its keys, and numbers as text. `engine.py` joins the files into one text.
-- This file and `scripts.lua` come first. Each further file is a block: it sees the local names of these two files only.
--
-- A keyspace is a table: db (key -> entry), channels (channel -> listeners), scripts (sha -> true), publish (a function),
-- versions, writes, flushed and watched (for WATCH). An entry is {kind, value, at}: `at` is its expiry in ms of server time
-- (INF: never). Hashes and sets have the number of their members in `n`, sorted sets their members in order in `line`.
--
-- A command is a function of its arguments, which are all strings. It returns its reply as a script sees it (false for nil), or
-- nil and the text of an error.
local INF = math.huge
local type, select, unpack, pcall, error = type, select, unpack, pcall, error
local format, upper, lower = string.format, string.upper, string.lower

local space, db, now, ms, full, wrote  -- keyspace of the running call, its data, and its time in us and ms; set by `enter`
local commands = {}  -- by name, in upper case and in lower case
local WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'
local SYNTAX = 'ERR syntax error'
local OOM = "OOM command not allowed when used memory > 'maxmemory'."
local NOT_INTEGER = 'ERR value is not an integer or out of range'

-- Registers a command with min to max arguments. Flags: r reads, w writes, m writes and may need memory, x not in scripts.
local function define(name, min, max, flags, run)
  local command = {name = lower(name), run = run, min = min, max = max,
                   writes = flags:find('[wm]') and true, grows = flags:find('m') and true, barred = flags:find('x') and true}
  commands[name], commands[lower(name)] = command, command
  if not command.barred then  -- numbers of arguments with which a script may run the command without further checks
    for n = min, math.min(max, 9) do command[n] = true end
  end
end

-- Records that a key was changed, for connections that WATCH it.
local function touch(key)
  if not space.watched then return end
  space.writes = space.writes + 1
  space.versions[key] = space.writes
end

-- Returns the entry of a key, or nil. A key exists up to and including the millisecond at which it expires.
local function find(key)
  local entry = db[key]
  if entry and entry.at < ms then
    db[key] = nil
    touch(key)
    return nil
  end
  return entry
end

-- Returns the entry of a key if it is of this kind or missing, else nil and the error.
local function typed(key, kind)
  local entry = db[key]
  if not entry then return nil end
  if entry.at < ms then return find(key) end
  if entry.kind ~= kind then return nil, WRONGTYPE end
  return entry
end

-- Converting between numbers and text is slow, and mostly the same few are converted. So a thousand results are cached for
-- each direction.
local numbers, number_count = {}, 0
local words, word_count = {}, 0

-- Parses an integer as the server does: no sign but '-', no leading zeros. Returns nil if the text is not one.
local function integer(text)
  local n = numbers[text]
  if n then return n end
  if text ~= '0' and not text:find('^-?[1-9]%d*$') then return nil end
  n = tonumber(text)
  if n >= 9223372036854775808 or n < -9223372036854775808 then return nil end
  if number_count == 1000 then numbers, number_count = {}, 0 end
  numbers[text], number_count = n, number_count + 1
  return n
end

-- Returns a number as text with all its digits, unlike tostring: tostring(1.7e15) is '1.7e+15'.
local function digits(n)
  local text = words[n]
  if text then return text end
  if n % 1 ~= 0 or n >= 1e17 or n <= -1e17 then return format('%.17g', n) end
  text = format('%d', n)
  if n < 1e9 then
    if word_count == 1000 then words, word_count = {}, 0 end
    words[n], word_count = text, word_count + 1
  end
  return text
end

local function flush()
  db = {}
  space.db = db
  space.writes = space.writes + 1
  space.versions, space.flushed = {}, space.writes
end

-- Converts a glob pattern of the server to a Lua pattern.
local function pattern_of(glob)
  local out, i = {'^'}, 1
  local function literal(char)
    return char == '\0' and '%z' or (char:gsub('%W', '%%%0'))
  end
  while i <= #glob do
    local char = glob:sub(i, i)
    if char == '*' then
      out[#out + 1] = '.*'
    elseif char == '?' then
      out[#out + 1] = '.'
    elseif char == '\\' and i < #glob then
      i = i + 1
      out[#out + 1] = literal(glob:sub(i, i))
    elseif char == '[' then
      local close = glob:find(']', i + 1, true) or #glob + 1
      local inside = glob:sub(i + 1, close - 1):gsub('[^%w%^%-]', literal)
      out[#out + 1] = '[' .. inside .. ']'
      i = close
    else
      out[#out + 1] = literal(char)
    end
    i = i + 1
  end
  return table.concat(out) .. '$'
end
