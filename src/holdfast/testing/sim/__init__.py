"""A world in which locks are taken: processes, networks and servers under one virtual time, and everything that can go wrong.

world      time, what happens next, and the history of what happened
wire       connections: ordered, slow, cut, silent; and the lines that a keeper has over them
server     a keyspace with a clock, listeners and a life of its own
process    a process with its clock and its keeper
worker     its threads or tasks, which carry out the production operations unchanged
lock       the lock as a worker uses it, writing down what it does
faults     what can go wrong, and how
ending     what is left behind when all is over
stepwise   a world in which each step is chosen, and what can happen next
state      what a state of such a world is, so that each is searched once
"""
