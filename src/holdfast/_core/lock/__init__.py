"""One lock on one server: acquiring, queueing, renewing and releasing it."""
