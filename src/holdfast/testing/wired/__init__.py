"""Simulated histories that test production's drivers and connections, over scripted sockets and under virtual time.

The simulator in `holdfast.testing.sim` has a driver of its own. In these histories, all code from the lease down to the bytes
is production's: `_runtime.drivers.sync`, `_runtime.drivers.aio`, `_runtime.keeper.thread`, `_net.pipelined_connection`,
`_net.sync_connection`, `_net.aio_connection` and `_net.protocol`. A `Machine` replaces `holdfast._net.system.SYSTEM`, the
constructor argument through which this code reaches time, sockets and threads.

world      the virtual time and the planned events
sockets    both ends of a scripted connection, with delays, cuts and partial writes; and a selector for scripted sockets
server     the server behind the sockets: runs the real Lua scripts, and is reached by RESP bytes
machine    the machine on which the drivers run, the steps of the keeper (background thread), and the event loop
histories  the workers' use of locks, drawn from a seed; the faults; the rules
"""
