-- How scripts read what stands on the server: anybody who may write there may have written anything. Most runs need only what is
-- checked in place, as a function more costs them a tenth of their time.
-- MODEL    models/handover.pml
-- INCLUDE  shared/_constants
local LONGEST = 4096  -- bytes of a text that a script answers, at most, where it is not a value of the users

-- So much of a text that it can be told from others: whoever can write it shall not have all who ask read what a server can store.
local function short(text)
  return string.sub(text or '', 1, LONGEST)
end

-- A whole number, or `otherwise`.
local function whole(text, otherwise)
  local n = tonumber(text)
  if n and n <= MOST and not string.find(text, '%D') then return n end
  return otherwise
end
