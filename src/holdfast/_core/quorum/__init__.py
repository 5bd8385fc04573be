"""Redlock, a lock on several independent servers, which a client holds if a majority of them votes for it."""
