"""Finding locks on a server, and taking one away from its holder."""
