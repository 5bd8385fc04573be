-- Run scripts: redis.call, and the globals that a script sees.

local function find_command(name)
  return type(name) == 'string' and commands[upper(name)] or nil
end

-- Returns an argument as text, or false if it cannot be converted.
local function text(value)
  return type(value) == 'string' and value or type(value) == 'number' and digits(value)
end

local function texts(n, ...)
  local args = {...}
  for i = 1, n do
    args[i] = text(args[i])
    if not args[i] then return false end
  end
  return args
end
local BAD_ARGUMENT = 'ERR Lua redis lib command arguments must be strings or integers'

-- Returns the error of a command called with this number of arguments, or nil.
local function refusal(command, n)
  if not command then return 'ERR Unknown Redis command called from script' end
  if n < command.min or n > command.max then return 'ERR Wrong number of args calling Redis command from script' end
  if command.barred then return 'ERR This Redis command is not allowed from script' end
end

-- redis.call and redis.pcall, which differ in the handling of errors. Up to five arguments are passed without building a table.
local function caller(fail)
  return function(name, ...)
    local n = select('#', ...)
    local command = commands[name]
    if not command or not command[n] then
      command = find_command(name)
      local wrong = refusal(command, n)
      if wrong then return (fail(wrong)) end
    end
    if space.forbidden and space.forbidden[command.name] then
      space.refused = space.refused + 1
      return (fail('NOPERM this user has no permissions to run the command'))
    end
    local a, b, c, d, e = ...
    local args
    if n > 5 then
      args = texts(n, ...)
      if not args then return (fail(BAD_ARGUMENT)) end
    else
      if n > 0 and type(a) ~= 'string' then a = text(a) end
      if n > 1 and type(b) ~= 'string' then b = text(b) end
      if n > 2 and type(c) ~= 'string' then c = text(c) end
      if n > 3 and type(d) ~= 'string' then d = text(d) end
      if n > 4 and type(e) ~= 'string' then e = text(e) end
      if a == false or b == false or c == false or d == false or e == false then return (fail(BAD_ARGUMENT)) end
    end
    if command.writes then
      if command.grows and full and not wrote then return (fail(OOM)) end
      wrote = true
    end
    local reply, wrong
    if args then
      reply, wrong = command.run(unpack(args, 1, n))
    else
      reply, wrong = command.run(a, b, c, d, e)
    end
    if wrong then return (fail(wrong)) end
    return reply
  end
end

local function raise(message)
  error({err = message, line = debug.getinfo(3, 'l').currentline})
end

local function as_value(message)
  return {err = message}
end

-- The globals that scripts see: a script can neither change them nor add others.

local function locked()
  error('Attempt to modify a readonly table', 2)
end

-- The status replies of successful commands, one shared table for each.
local OK = setmetatable({}, {__index = {ok = 'OK'}, __newindex = locked, __metatable = false})

getmetatable('').__metatable = false

local read_only = {}
local function view(of)
  local proxy = setmetatable({}, {__index = of, __newindex = locked, __metatable = false})
  read_only[proxy] = true
  return proxy
end

local function field_reply(field, text)
  if type(text) ~= 'string' then return {err = 'ERR wrong number or type of arguments'} end
  return {[field] = text}
end

local redis = {
  call = caller(raise),
  pcall = caller(as_value),
  status_reply = function(text) return field_reply('ok', text) end,
  error_reply = function(text) return field_reply('err', type(text) == 'string' and text:gsub('^%-', '') or text) end,
  replicate_commands = function() return true end,
  log = function() end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
}

-- pairs and next visit a table in sorted order, so that a script depends only on its data.
local function before(a, b)
  local kind, other = type(a), type(b)
  if kind ~= other then return kind < other end
  if kind == 'number' or kind == 'string' then return a < b end
  return tostring(a) < tostring(b)
end

local function keys_of(of)
  local keys = {}
  for key in next, of do keys[#keys + 1] = key end
  table.sort(keys, before)
  return keys
end

-- Returns the item after `key` in sorted order. The loop around this call may have removed `key` from the table.
local function ordered_next(of, key)
  for _, other in ipairs(keys_of(of)) do
    if key == nil or before(key, other) then return other, rawget(of, other) end
  end
end

local function ordered_pairs(of)
  local keys, i = keys_of(of), 0
  return function()
    repeat i = i + 1 until keys[i] == nil or rawget(of, keys[i]) ~= nil
    if keys[i] ~= nil then return keys[i], rawget(of, keys[i]) end
  end, of
end

local math_for_scripts = {}
for name, value in pairs(math) do math_for_scripts[name] = value end
math_for_scripts.random, math_for_scripts.randomseed = nil, nil  -- so that each run of a script gives the same result

local globals = {
  redis = view(redis), string = view(string), table = view(table), math = view(math_for_scripts),
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = ordered_next, pairs = ordered_pairs,
  pcall = pcall, rawequal = rawequal, rawget = rawget, select = select, setmetatable = setmetatable, tonumber = tonumber,
  tostring = tostring, type = type, unpack = unpack, xpcall = xpcall, _VERSION = 'Lua 5.1',
  rawset = function(where, key, value)
    if read_only[where] then locked() end
    return rawset(where, key, value)
  end,
}
setmetatable(globals, {__index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end})
local environment = view(globals)
globals._G = environment

local sha_of = {}  -- function -> sha

-- Returns the reply of a script that an error has ended.
local function died(script, wrong)
  local line
  if type(wrong) == 'table' then
    line, wrong = wrong.line, tostring(wrong.err or 'ERR unknown error')
  else
    wrong = tostring(wrong)
    line = wrong:match('^user_script:(%d+):')
    wrong = 'ERR ' .. wrong
  end
  return {err = wrong .. ' script: ' .. sha_of[script] .. ', on @user_script:' .. (line or '?') .. '.'}
end

local function compile(text, sha)
  local script, wrong = loadstring(text, '@user_script')
  if not script then return nil, 'ERR Error compiling script (new function): ' .. wrong end
  setfenv(script, environment)
  sha_of[script] = sha
  return script
end

local function eval(script, keys, argv)
  globals.KEYS, globals.ARGV = keys, argv
  local ok, reply = pcall(script)
  if ok then return reply end
  return died(script, reply)
end
