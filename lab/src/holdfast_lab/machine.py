"""The simulator as a Hypothesis state machine: Hypothesis chooses the steps and faults, and shrinks a failing example.

The module needs ``hypothesis``. To run the machine, put ``TestCase = LockMachine.TestCase`` into a test module.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast_lab import checkers
from holdfast_lab.checkers import Limits
from holdfast_lab.scenarios.lock import ALL_FAULTS, LockScenario, once
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.virtual_time import Stuck
from holdfast_lab.sim.world import Api

WAITS = st.sampled_from((None, 0.0, 0.7, 5.0))
APIS: st.SearchStrategy[Api] = st.sampled_from(("threads", "asyncio"))
HOLDS = st.sampled_from((0.0, 0.5, 3.0))


class LockMachine(RuleBasedStateMachine):
    """One lock with two to four clients, one or two in each process. Up to three faults happen."""

    world: Stepwise
    scenario: LockScenario

    @initialize(
        rounds=st.lists(st.tuples(WAITS, HOLDS), min_size=2, max_size=4),
        api=APIS,
        together=st.integers(1, 2),
        linger=st.sampled_from((0.0, 0.3)),
    )
    def build(self, rounds: list[tuple[float | None, float]], api: Api, together: int, linger: float) -> None:
        """Build the world. ``rounds`` has, for each client, how long it waits and how long it holds the lock, in seconds.

        Each process has ``together`` clients, which use the API ``api``. ``linger`` is the option of the lock.
        """
        programs = tuple(once(wait, hold) for wait, hold in rounds)
        self.scenario = LockScenario(
            "chosen", "by Hypothesis", programs, ALL_FAULTS, 3, api=api, together=together, linger=linger, warm=together > 1
        )
        self.world = self.scenario.build()

    @precondition(lambda self: bool(self.world.working))
    @rule(choice=st.integers(0, 30))
    def happens(self, choice: int) -> None:
        """Run the step with the number ``choice`` among the possible steps that are no faults."""
        options = [step for step in self.world.options() if not step.fault]
        options[choice % len(options)].do()

    @precondition(lambda self: bool(self.world.working) and self.world.budget > 0)
    @rule(choice=st.integers(0, 200))
    def goes_wrong(self, choice: int) -> None:
        """Inject the fault with the number ``choice`` among the possible faults, if there are any."""
        options = [step for step in self.world.options() if step.fault]
        if options:
            options[choice % len(options)].do()

    @precondition(lambda self: not self.world.working)
    @rule()
    def is_over(self) -> None:
        """Do nothing. Hypothesis needs a possible step after all clients have ended."""

    @invariant()
    def obeys_the_rules(self) -> None:
        if hasattr(self, "world"):
            self.check()

    def check(self) -> None:
        found = self.found()
        assert not found, "; ".join(found)

    def found(self) -> list[str]:
        return [str(v) for v in checkers.check(self.world.history, limits=Limits(linger=self.scenario.linger))]

    def teardown(self) -> None:
        """Run the rest of the history without faults. All clients must end, and no rule may be violated."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.budget = 0
        try:
            for _ in range(3000):
                if not world.working:
                    break
                world.options()[0].do()
            else:
                raise AssertionError("no end after 3000 steps")
            self.scenario.settle(world)
            self.check()
        except Stuck:
            raise AssertionError("no client can make a step, and some still wait") from None
        finally:
            world.close()
