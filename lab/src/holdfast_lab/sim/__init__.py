"""A simulated world for the library's operations: processes, networks and servers run under one virtual time, with faults.

world                  virtual time, the planned events and the recorded history; the processes, with their clocks and keepers
virtual_time           the time at which histories begin, the form of a planned event, and random delays
network                simulated connections, which can be slow, cut or silent; the connections of a keeper, which open
                       again after a loss
server                 a server with a clock, subscriptions and data, which can hang, crash and restart
worker                 a thread or task of a process, which runs the library's operations unchanged
lock_client            the lock as a worker uses it, with each step recorded; the other ``*_client`` modules do the same for
                       elections, barriers, schedules and so on
faults                 the kinds of faults, and the functions that inject them
rare                   the themes, rare faults that are added to whole histories
leftovers              the data that remains when a history has ended
stepwise               a world in which a search chooses each step among those that are possible next
state                  fingerprints of the states of a `stepwise` world, by which the search visits each state only once
"""
