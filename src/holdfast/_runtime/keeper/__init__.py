"""The keeper: the background thread that renews leases and listens for notifications, and its connections."""
