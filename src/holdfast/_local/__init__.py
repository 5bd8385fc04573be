"""Programs that holdfast starts on this machine: servers, and guardians, which end commands when their owners end."""
