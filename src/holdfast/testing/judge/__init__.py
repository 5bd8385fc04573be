"""The rules that a history must obey, and what they need: the history arranged by locks, the excuses, and counts of verdicts.

`holdfast.testing.checkers` applies the rules. They depend on neither the code of the locks nor the simulator.
"""
