"""The keeper, which is the background thread that renews leases and listens for notifications, and its connections."""
