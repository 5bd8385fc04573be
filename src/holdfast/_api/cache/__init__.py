"""`Cache` in both APIs: its options, the steps of a call, and functions whose results are cached."""
