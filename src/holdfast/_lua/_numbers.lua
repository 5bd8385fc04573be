-- Shared by the scripts of a lock and of permits: numbers of the format.
-- MODEL    models/handover.pml
local CLAIM = 2000   -- ms a granted waiter has to take up what it was given
local KEEP = 600000  -- ms the side keys outlive their last use, at least
