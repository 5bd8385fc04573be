"""The keeper: the background thread that renews leases and receives notifications, and its connections."""
