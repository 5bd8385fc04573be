-- Commands about the server, the connection, scripts, and messages.
local VERSION = '7.0.0'

local function ok() return OK end

-- Returns the error of an unknown subcommand.
local function unknown(command, name)
  return nil, "ERR unknown subcommand '" .. name .. "'. Try " .. command .. ' HELP.'
end

local function misused(command, name)
  return nil, "ERR unknown subcommand or wrong number of arguments for '" .. name .. "'. Try " .. command .. ' HELP.'
end

-- The server

local second, second_text = 0, '0'

define('TIME', 0, 0, 'r', function()
    local us = now % 1000000
  if second ~= now - us then
    second = now - us
    second_text = format('%d', second / 1000000)
  end
  return {second_text, format('%d', us)}
end)

local SECTIONS = {'server', 'replication'}
local INFO = {
  server = function()
    return '# Server\r\nredis_version:' .. VERSION .. '\r\nredis_mode:standalone\r\nrun_id:' .. space.run_id .. '\r\n'
  end,
  replication = function() return '# Replication\r\nrole:master\r\nconnected_slaves:0\r\n' end,
}

define('INFO', 0, INF, 'r', function(...)
  local asked, out = {}, {}
  for _, name in ipairs({...}) do asked[lower(name)] = true end
  local all = next(asked) == nil or asked.default or asked.all or asked.everything
  for _, name in ipairs(SECTIONS) do
    if all or asked[name] then out[#out + 1] = INFO[name]() end
  end
  return table.concat(out, '\r\n')
end)

-- The connection

define('PING', 0, 1, 'r', function(text) return text or {ok = 'PONG'} end)
define('ECHO', 1, 1, 'r', function(text) return text end)
define('QUIT', 0, INF, 'rx', ok)
define('AUTH', 1, 2, 'rx', ok)

define('SELECT', 1, 1, 'r', function(index)
  local n = integer(index)
  if not n then return nil, NOT_INTEGER end
  if n ~= 0 then return nil, 'ERR DB index is out of range' end
  return ok()
end)

define('HELLO', 0, INF, 'rx', function(version)
  local proto = integer(version or '2')
  if not proto then return nil, 'ERR Protocol version is not an integer or out of range' end
  if proto ~= 2 and proto ~= 3 then return nil, 'NOPROTO unsupported protocol version' end
  return {'server', 'redis', 'version', VERSION, 'proto', proto, 'id', 1, 'mode', 'standalone', 'role', 'master',
          'modules', {}}
end)

define('CLIENT', 1, INF, 'rx', function(name)
  local what = upper(name)
  if what == 'ID' then return 1 end
  if what == 'GETNAME' then return false end
  if what == 'SETNAME' or what == 'SETINFO' or what == 'NO-EVICT' or what == 'NO-TOUCH' then return ok() end
  return unknown('CLIENT', name)
end)

-- Messages

define('PUBLISH', 2, 2, 'r', function(channel, message)
  space.publish(channel, message)
  return space.channels[channel] or 0
end)

define('PUBSUB', 1, INF, 'r', function(name, ...)
  local what, found = upper(name), {}
  if what == 'NUMSUB' then
    for i, channel in ipairs({...}) do
      found[2 * i - 1], found[2 * i] = channel, space.channels[channel] or 0
    end
  elseif what == 'CHANNELS' then
    local glob, more = ...
    if more then return misused('PUBSUB', name) end
    for channel in pairs(space.channels) do
      if not glob or channel:find(pattern_of(glob)) then found[#found + 1] = channel end
    end
    table.sort(found)
  elseif what == 'NUMPAT' then
    return 0
  else
    return unknown('PUBSUB', name)
  end
  return found
end)

-- Scripts

local compiled = {}  -- sha -> function, for all keyspaces; each keyspace lists the scripts that were loaded in it

local function load_script(text)
  local sha = redis.sha1hex(text)
  if not compiled[sha] then
    local script, wrong = compile(text, sha)
    if wrong then return nil, wrong end
    compiled[sha] = script
  end
  space.scripts[sha] = true
  return sha
end

local NOSCRIPT = 'NOSCRIPT No matching script. Please use EVAL.'

-- EVAL and EVALSHA: `find_script` returns the sha of the script, or nil and the error.
local function evaluation(find_script)
  return function(asked, count, ...)
    local n = integer(count)
    if not n then return nil, NOT_INTEGER end
    local args = {...}
    if n > #args then return nil, "ERR Number of keys can't be greater than number of args" end
    if n < 0 then return nil, "ERR Number of keys can't be negative" end
    local sha, wrong = find_script(asked)
    if wrong then return nil, wrong end
    wrote = false
    return eval(compiled[sha], {unpack(args, 1, n)}, {unpack(args, n + 1)})
  end
end
define('EVAL', 2, INF, 'rx', evaluation(load_script))

local by_sha = evaluation(function(sha)
  if not space.scripts[sha] then return nil, NOSCRIPT end
  return sha
end)
define('EVALSHA', 2, INF, 'rx', function(sha, ...)
  if #sha ~= 40 then return nil, NOSCRIPT end
  return by_sha(lower(sha), ...)
end)

define('SCRIPT', 1, INF, 'rx', function(name, ...)
  local what, args = upper(name), {...}
  if what == 'LOAD' and #args == 1 then return load_script(args[1]) end
  if what == 'FLUSH' and #args <= 1 then
    space.scripts = {}
    return ok()
  end
  if what == 'EXISTS' and args[1] then
    for i, sha in ipairs(args) do args[i] = space.scripts[lower(sha)] and 1 or 0 end
    return args
  end
  return unknown('SCRIPT', name)
end)
