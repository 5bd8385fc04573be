"""The rules that judge a history, and their tools.

`holdfast_lab.checkers` applies the rules. They see only the history, and neither the code of the locks nor the simulator.
"""
