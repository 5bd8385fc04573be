"""How a history is judged: the evidence laid out, the rules, the deadlines, and what has happened at all.

`holdfast.testing.checkers` asks all of them. None knows anything of the locks, or of the simulator.
"""
