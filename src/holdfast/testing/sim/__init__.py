"""A world in which locks are taken: processes, networks and servers under one virtual time, and everything that can go wrong.

world      time, what happens next, and the history of what happened
wire       connections: ordered, slow, cut, silent; and the lines that a keeper has over them
server     a keyspace with a clock, listeners and a life of its own
process    a process with its clock, its keeper, and its workers, who carry out the production operations unchanged
lock       the lock as a worker uses it, writing down what it does
faults     what can go wrong, and how
"""
