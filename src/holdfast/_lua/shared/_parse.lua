-- Parse stored texts and numbers. Any client that may write to the keys could have forged them. The fast paths of scripts check
-- them without these functions, because a function costs a fast path a tenth of its time.
-- MODEL    models/lock_handover.pml
-- INCLUDE  shared/_constants
local LONGEST = 4096  -- maximum length, in bytes, of a text in a reply; a user's value may be longer

-- Shorten a text, because a client that can forge one must not make others read megabytes.
local function short(text)
  return string.sub(text or '', 1, LONGEST)
end

-- Return a text as a whole number from 0 to MOST; `otherwise` if it is not one.
local function whole(text, otherwise)
  local n = tonumber(text)
  if n and n <= MOST and not string.find(text, '%D') then return n end
  return otherwise
end
