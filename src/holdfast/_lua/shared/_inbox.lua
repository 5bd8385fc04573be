-- Shared by the scripts that notify a process, which has one inbox for each prefix that it uses (_core/lock/node.py).
-- MODEL    models/lock_handover.pml
--
-- A token is '<id>.<random>', or '<id>@<prefix in hex>.<random>' for a lock whose key the user has chosen. If the token names
-- no prefix, the prefix is the text before the first brace of the key. So the channel follows from key and token.
-- A process whose id has a hash tag listens by sharded pub/sub, in a slot of this server (_net/slots.py).
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
