"""Swarms: random histories with faults. Each module but `swarm` and `result` tests one capability.

A module declares its ``SWARM``: the class of its histories, the rules that apply to them, and the minimum counts of events. A
history draws its ``Profile``, which has its parameters, from a seed. The base class in `swarm` runs it and has it judged.
"""
