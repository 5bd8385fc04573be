-- Shared by the scripts that tell a process something: it has an inbox in each prefix that it uses, see _core/lock/node.py.
-- MODEL    models/handover.pml
--
-- A token is '<id>.<random>', or '<id>@<prefix in hex>.<random>' of a lock whose key is one of the user's own. The prefix is what
-- stands before the first brace of the key, unless the token names it. So the channel follows from the keys and the token alone.
-- An id with a hash tag listens by sharded pub/sub, in a slot of this server: see _net/slots.py.
local function inbox_of(key, token)
  local id, home = string.match(token, '^([^.@]*)@?(%x*)')
  if home == '' then
    home = string.match(key, '^[^{]*')
  else
    home = string.gsub(home, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  end
  return home .. 'inbox:' .. id
end

local function is_sharded(inbox)
  return string.find(inbox, '{', 1, true)
end

local function publish(inbox, message)
  if is_sharded(inbox) then return redis.pcall('SPUBLISH', inbox, message) end
  return redis.pcall('PUBLISH', inbox, message)
end
