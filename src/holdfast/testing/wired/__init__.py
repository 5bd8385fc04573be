"""Histories of the real drivers and connections, over scripted sockets and under virtual time.

`holdfast.testing.sim` replaces the drivers by its own; here they are what is judged. All code from the lease down to the
bytes is production's: `_runtime.drivers.sync`, `_runtime.drivers.aio`, `_runtime.keeper.thread`, `_net.pipelined_connection`,
`_net.sync_connection`, `_net.aio_connection` and `_net.protocol`. A `Machine` replaces `holdfast._net.system.SYSTEM`, the
constructor argument through which this code reaches time, sockets and threads.

world      virtual time: what happens next
sockets    both ends of a scripted connection: delays, cuts, partial writes; and the selector that watches them
server     the server behind them: the real Lua scripts, reached by RESP bytes
machine    the machine that the drivers run on, the steps of the keeper, and the event loop
histories  what workers do with locks there, drawn from a seed; the faults; the rules
"""
