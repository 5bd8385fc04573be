"""Those who act: drivers of the operations (`sync`, `aio`) and the keeper, which renews leases and listens for hand-overs."""
