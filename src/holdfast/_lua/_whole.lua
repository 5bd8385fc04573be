-- A whole number out of what stands on the server, or `otherwise`: anybody who may write there may have written anything. Stands
-- behind _numbers; what most runs need is checked in place, as a function more costs them a tenth of their time.
-- MODEL    models/handover.pml
local function whole(text, otherwise)
  local n = tonumber(text)
  if n and n <= MOST and not string.find(text, '%D') then return n end
  return otherwise
end
