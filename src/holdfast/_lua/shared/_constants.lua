-- Numbers of the format, for all scripts.
-- MODEL    models/handover.pml
local CLAIM = 2000   -- ms a granted waiter has to take up what it was given
local KEEP = 600000  -- ms the side keys outlive their last use, at least
local MOST = 9007199254740991  -- no number of the format is above: beyond 2^53, the next one may be the same
