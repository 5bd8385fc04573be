"""``holdfast bench``: measure what a lock costs, next to bare server commands and other lock libraries.

Layout
------
`scenarios` lists everything that can be measured; a scenario is a module with ``measure(plan) -> Result``. `plan` has the
settings of a measurement (server, time) and the order in which contenders (the compared locks) take turns. `rivals`
creates the locks that are
compared; `bare` is the lower bound for comparison, a lock that consists of a socket and two commands. `throughput`
counts acquisitions per second,
`workers` starts other processes, `wiretap` records the commands that reach the server. `report` formats the results as text
and JSON, `charts` draws them, `machine` describes the machine.

Only the subcommand ``holdfast bench`` imports this package.
"""
