"""``holdfast bench``: what a lock costs, against the bare server and against the locks people use today.

General layout
--------------
`scenarios` is the table of all that can be measured; a scenario is a module with ``measure(plan) -> Result``. `plan` is what
all of them are told (which server, how long) and how contenders take turns. `rivals` makes the locks that are compared,
`bare` is the floor: a socket and nothing else. `throughput` counts how often a lock changes hands, `workers` are the other
processes, `wiretap` reads along at the server. `report` is what comes out, as text and as JSON, `charts` draws it, `machine`
says where it was measured.

Only the subcommand imports this package.
"""
