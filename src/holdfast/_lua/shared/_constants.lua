-- Numbers that all scripts and all releases must agree on.
-- MODEL    models/lock_handover.pml
local CLAIM = 2000   -- lease, in ms, of a waiter that was handed a lock, until it renews (claim window)
local KEEP = 600000  -- least time, in ms, for which state and queue outlive their last use
local MOST = 9007199254740991  -- maximum number stored: above 2^53, n and n + 1 may be the same
