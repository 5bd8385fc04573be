"""The demonstrations of ``holdfast demo``, except the tour. The table of all of them, and the code that they share, are in
`holdfast.cli.demo`."""
