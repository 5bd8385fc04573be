-- The functions that Python calls, and the conversion of replies and contents. This is the last file: it returns the functions.
local K = {redis = redis}

-- Replies to Python

local function whole(n)
  if n ~= n or n >= 9223372036854775808 or n <= -9223372036854775808 then return -9223372036854775808 end
  return n < 0 and math.ceil(n) or math.floor(n)
end

-- Writes a reply into a list of tags and values, and returns the length of the list.
local function spell(reply, out, n)
  local kind = type(reply)
  if kind == 'number' then
    out[n + 1], out[n + 2] = ':', whole(reply)
  elseif kind == 'string' then
    out[n + 1], out[n + 2] = '$', reply
  elseif reply == true then
    out[n + 1], out[n + 2] = ':', 1
  elseif kind ~= 'table' then
    out[n + 1], out[n + 2] = '_', false
  elseif type(reply.err) == 'string' then
    out[n + 1], out[n + 2] = '-', reply.err
  elseif type(reply.ok) == 'string' then
    out[n + 1], out[n + 2] = '+', reply.ok
  else
    local at, size = n + 2, 0
    out[n + 1], out[at] = '*', 0
    n = at
    while reply[size + 1] ~= nil do
      size = size + 1
      n = spell(reply[size], out, n)
    end
    out[at] = size
    return n
  end
  return n + 2
end

-- Returns a reply as values for Python: an integer, a string or nil unchanged; a flat array as true and its items; anything
-- else as false and a list of tags and values.
local function give(reply)
  local kind = type(reply)
  if kind == 'string' then return reply end
  if kind == 'number' then return reply % 1 == 0 and reply or whole(reply) end
  if kind ~= 'table' then return reply and 1 or nil end
  if not reply.err and not reply.ok then
    local n = 0
    while n < 200 do
      local item = reply[n + 1]
      if item == nil then return true, unpack(reply, 1, n) end
      n = n + 1
      kind = type(item)
      if kind == 'number' then
        if item % 1 ~= 0 then reply[n] = whole(item) end
      elseif kind ~= 'string' then
        break
      end
    end
  end
  local out = {}
  spell(reply, out, 0)
  return false, out
end

-- Calls from Python

local function enter(ks, at, is_full)
  space, db, now, full, wrote = ks, ks.db, at, is_full, false
  ms = (at - at % 1000) / 1000
end

-- Up to three keys and three arguments, as scripts of a lock have, are passed without building a list, to save time.
function K.run(ks, script, at, is_full, count, ...)
  space, db, now, full, wrote = ks, ks.db, at, is_full, false
  ms = (at - at % 1000) / 1000
  local a, b, c, x, y, z, more = ...
  if count == 3 and more == nil then
    globals.KEYS, globals.ARGV = {a, b, c}, {x, y, z}
  else
    globals.KEYS, globals.ARGV = {unpack({...}, 1, count)}, {select(count + 1, ...)}
  end
  local ok, reply = pcall(script)
  if ok then return give(reply) end
  return give(died(script, reply))
end

function K.execute(ks, at, is_full, name, ...)
  enter(ks, at, is_full)
  local command, n = find_command(name), select('#', ...)
  if not command then
    local said = {}
    for i = 1, math.min(n, 20) do said[i] = "'" .. select(i, ...):match('^%Z*') .. "' " end
    return give({err = "ERR unknown command '" .. name .. "', with args beginning with: " .. table.concat(said)})
  end
  if n < command.min or n > command.max then
    return give({err = "ERR wrong number of arguments for '" .. command.name .. "' command"})
  end
  if command.grows and full then return give({err = OOM}) end
  local reply, wrong = command.run(...)
  if wrong then return give({err = wrong}) end
  return give(reply)
end

-- The state as a whole

function K.new(publish)
  return {db = {}, channels = {}, scripts = {}, publish = publish, versions = {}, writes = 0, flushed = 0}
end

-- Forbids scripts to run this command from now on.
function K.forbid(ks, name)
  ks.forbidden = ks.forbidden or {}
  ks.forbidden[name], ks.refused = true, 0
end

function K.forbidden(ks)
  return ks.refused or 0
end

function K.subscribe(ks, channel, by)
  local count = (ks.channels[channel] or 0) + by
  ks.channels[channel] = count > 0 and count or nil
end

function K.version(ks, at, key)
  enter(ks, at, false)
  ks.watched = true
  find(key)
  return ks.versions[key] or ks.flushed
end

-- Returns the value of a string and its expiry (ms of server time, or false), or nothing if there is no such string.
function K.peek(ks, at, key)
  enter(ks, at, false)
  local entry = find(key)
  if entry and entry.kind == 'string' then return entry.value, entry.at < INF and entry.at end
end

function K.set_run_id(ks, id)
  ks.run_id = id
end

function K.clear(ks)
  enter(ks, 0, false)
  flush()
end

-- Returns the content: for each key its name, kind, expiry (false: none), number of items, and items. A few values are returned
-- one by one, but many values as a table.
function K.dump(ks, time)
  enter(ks, time, false)
  local out, n = {}, 0
  for key, entry in pairs(db) do
    local at, kind, value = entry.at, entry.kind, entry.value
    if at >= ms then
      local head = n + 4
      out[n + 1], out[n + 2], out[n + 3], out[head] = key, kind, at ~= INF and at, 0
      n = head
      if kind == 'string' then
        n = n + 1
        out[n] = value
      elseif kind == 'hash' then
        for field, text in pairs(value) do
          out[n + 1], out[n + 2] = field, text
          n = n + 2
        end
      else
        for _, member in ipairs(entry.line or value) do
          n = n + 1
          out[n] = member
          if entry.line then
            n = n + 1
            out[n] = value[member]
          end
        end
        if kind == 'set' then
          for member in pairs(value) do
            n = n + 1
            out[n] = member
          end
        end
      end
      out[head] = n - head
    end
  end
  if n < 1000 then return true, unpack(out, 1, n) end
  return false, out
end

-- Creates a key, or adds to it, with items as `dump` returns them.
function K.load(ks, key, kind, at, ...)
  local entry = ks.db[key] or {kind = kind, value = {}, n = 0, at = at or INF, line = kind == 'zset' and {} or nil}
  local value, items = entry.value, {...}
  if kind == 'string' then
    entry.value = items[1]
  elseif kind == 'hash' then
    for i = 1, #items, 2 do value[items[i]] = items[i + 1] end
    entry.n = entry.n + #items / 2
  elseif kind == 'zset' then
    for i = 1, #items, 2 do
      value[items[i]] = items[i + 1]
      entry.line[#entry.line + 1] = items[i]
    end
  elseif kind == 'list' then
    for i = 1, #items do value[#value + 1] = items[i] end
  else
    for i = 1, #items do value[items[i]] = true end
    entry.n = entry.n + #items
  end
  ks.db[key] = entry
end

K.compile = compile
return K
