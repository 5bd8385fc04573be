"""Swarms: random histories with faults. Each module tests one capability, such as elections.

``simulate(seed)`` runs the history that the seed determines, judges it by the rules, and adds the verdicts to ``coverage``. A
``Profile`` has the parameters of the history, and ``build`` makes its world and its workers.
"""
