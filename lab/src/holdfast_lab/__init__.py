"""The laboratory of holdfast: a simulator, a judge, benchmarks, and more demonstrations.

To install it, run ``pip install holdfast-lab``. This package imports `holdfast`. `holdfast` does not import this package. The
command line of `holdfast` calls `bench` and `demo` by name.

The simulator (``docs/design/simulation.md``):

- `sim` simulates processes, network and servers under virtual time, and runs production's operations in them.
- `swarms` and `runner` simulate random histories. `explore` and `scenarios` try every order of events of a small scenario. With
  `machine`, Hypothesis chooses the steps.
- Each run produces a history (`holdfast.testing.history`). `checkers` judges it by the rules in `judge`, and `timeline` draws
  it.
- `wired` tests the real drivers over scripted sockets.
- `ladder` has simple locks that are known to be broken, and finds out how they fail.
- `__main__` is the program ``python -m holdfast_lab``.

``holdfast bench`` is in `bench`, and all demonstrations of ``holdfast demo`` but the tour are in `demo`.
"""
