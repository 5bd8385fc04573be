"""``holdfast bench``: measure what a lock costs, next to bare server commands and to other lock libraries.

A benchmark consists of scenarios. Each scenario compares several contenders, that is, locks of holdfast and of other
libraries.

- `scenarios` lists all scenarios. Each of them is a module with a function ``measure(plan) -> Result``.
- `plan` has the settings of a measurement (server, time), and runs the contenders in turns.
- `rivals` creates the locks that are compared. `bare` has the simplest possible lock, a socket and two commands, as a
  lower bound.
- `throughput` counts acquisitions per second. `workers` starts other processes. `wiretap` records the commands that reach
  the server.
- `report` formats the results as text and JSON, `charts` draws them, and `machine` describes the machine.

Only the subcommand ``holdfast bench`` imports this package.
"""
