"""``holdfast bench``: measure what a lock costs, next to bare server commands and to other lock libraries.

- `scenarios` lists all scenarios. Each is a function such as ``measure(plan) -> Result``, which compares contenders.
- `plan` has the settings of a measurement (server, time), and runs the contenders in turns.
- `rivals` creates the locks that are compared. `bare` has the lower bound: a socket and two commands.
- `throughput` counts acquisitions per second. `workers` starts other processes. `wiretap` records the commands that reach the
  server.
- `report` formats the results as text and JSON, `charts` draws them, and `machine` describes the machine.
"""
