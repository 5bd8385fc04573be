"""The guardian: a process that starts a command for its owner, and ends the command when the owner ends."""
