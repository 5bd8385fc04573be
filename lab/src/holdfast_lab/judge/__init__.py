"""The rules that judge a history, and their tools. The tools arrange the history by locks, find faults that excuse a case, and
count the verdicts.

`holdfast_lab.checkers` applies the rules. The rules see only the history. They use neither the code of the locks nor
the simulator.
"""
