"""The rules that judge a history, and their tools: a view of the history by locks, the excuses by faults, and counts of
verdicts.

`holdfast_lab.checkers` applies the rules. The rules see only the history. They use neither the code of the locks nor
the simulator.
"""
