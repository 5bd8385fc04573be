"""The guardian: a process that ends a command with its owner."""
