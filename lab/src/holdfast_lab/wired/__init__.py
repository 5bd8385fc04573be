"""Simulated histories that test the library's drivers and connections, over scripted sockets and under virtual time.

The simulator in `holdfast_lab.sim` replaces the drivers by its own code. Here, all code from the lease down to the
bytes is the library's: `_runtime.drivers.sync`, `_runtime.drivers.aio`, `_runtime.keeper.thread`,
`_net.pipelined_connection`, `_net.sync_connection`, `_net.aio_connection` and `_net.protocol`. This code reaches time,
sockets and threads only through `holdfast._net.system.SYSTEM`. A `Machine` replaces this object.

world      the virtual time and the planned events
sockets    both ends of a scripted connection, with delays, cuts and partial writes; and a selector for such sockets
server     the server behind the sockets, which receives RESP bytes and runs the real Lua scripts
machine    the machine on which the drivers run, the steps of the keeper, and the event loop
histories  the workers' use of locks, drawn at random from a seed; the faults; and the rules
"""
