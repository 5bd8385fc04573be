"""A simulated world for the library's operations: processes, networks and servers run under one virtual time, with faults.

world         virtual time, the planned events, and the recorded history; processes, with their clocks and keepers
virtual_time  the time at which histories begin, the form of a planned event, and random delays
network simulated connections: ordered, slow, cut or silent; and the keeper's connections, which reopen by themselves
server        a server with a clock, listeners and data, which can hang, crash and restart
worker        the threads or tasks of a process, which run the operations of production unchanged
lock_client   the lock as a worker uses it, with each step recorded (the other ``*_client`` modules: other primitives)
faults        the faults, and the functions that inject them
leftovers     the data that remains when a history has ended
stepwise      a world in which a search chooses each step among those that are possible next
state         fingerprints of the state of such a world, so that the search visits each state once
"""
