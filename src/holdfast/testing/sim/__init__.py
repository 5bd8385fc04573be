"""A simulated world that uses locks: processes, networks and servers under one virtual time, and everything that can go wrong.

world         virtual time, the events that are due, and the recorded history
network       connections: ordered, slow, cut or silent; and the lines that a keeper has over them
server        a keyspace with a clock, listeners and a life of its own
process       a process with its clock and its keeper
worker        the threads or tasks of a process, which run the production operations unchanged
lock_client   the lock as a worker uses it, recording each step (other ``*_client`` modules: the other primitives)
faults        the faults, and how each one is injected
leftovers     the data that remains when a history has ended
stepwise      a world in which each step is chosen from those that are possible next
state         the state of such a world, so that the search visits each state once
"""
