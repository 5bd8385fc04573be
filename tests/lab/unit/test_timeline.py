"""Timelines are read by people: how they look is written down here, line by line."""

from __future__ import annotations

from math import inf

from holdfast.testing.history import Event
from holdfast_lab.checkers import Violation, check
from holdfast_lab.timeline import WIDTH, draw

OVERTAKEN = [
    Event(1e9, "ask", "p1/t1", "x", "p1/t1#1", until=inf),
    Event(1e9 + 0.0001, "sent", "p1", note="acquire at local 17.5"),
    Event(1e9 + 0.0002, "served", "server", note="acquire -> [1, 1700000000000000]"),
    Event(1e9 + 0.0002, "granted", "server", "x", "p1/t1#1", until=1e9 + 0.5),
    Event(1e9 + 0.0004, "taken", "p1/t1", "x", "p1/t1#1", fence=1_700_000_000_000_000, until=1e9 + 0.49),
    Event(1e9 + 0.1, "ask", "p2/t1", "x", "p2/t1#1", until=1e9 + 1.1),
    Event(1e9 + 0.11, "queued", "p2/t1", "x", "p2/t1#1", since=1e9 + 0.105),
    Event(1e9 + 0.2, "fault", "p1", note="pause", until=1e9 + 0.8),
    Event(1e9 + 0.2, "paused", "p1"),
    Event(1e9 + 0.5, "freed", "server", "x", "p1/t1#1"),
    Event(1e9 + 0.5, "granted", "server", "x", "p2/t1#1", until=1e9 + 2.5),
    Event(1e9 + 0.501, "taken", "p2/t1", "x", "p2/t1#1", fence=1_700_000_000_500_000, until=1e9 + 2.4),
    Event(1e9 + 0.502, "write", "p2/t1", "x", "p2/t1#1", fence=1_700_000_000_500_000, note="accepted"),
    Event(1e9 + 0.8, "resumed", "p1"),
    Event(1e9 + 0.8, "lost", "p1/t1", "x", "p1/t1#1", note="its time ran out before a renewal was confirmed"),
    Event(1e9 + 0.81, "write", "p1/t1", "x", "p1/t1#1", fence=1_700_000_000_000_000, note="accepted"),
    Event(1e9 + 0.9, "crashed", "p2"),
    Event(1e9 + 2.5, "end"),
]

DRAWN = """
        ms    p1/t1                           p2/t1                           server
     0.000    asks, waits forever
     0.100    > acquire at local 17.5
     0.200                                                                    . acquire -> [1,
                                                                              1700000000000000]
     0.200                                                                    grants p1/t1#1 until 500.0
     0.400  ┃ HOLDS until 490.0, fence 1
   100.000  ┃                                 asks, waits 1000 ms
   110.000  ┃                                 joins the queue
   200.000  ╏ is stopped
   490.000  ┊ the lease ends
   500.000  ┊                                                                 frees p1/t1#1
   500.000  ┊                                                                 grants p2/t1#1 until 2500.0
   501.000  ┊                               ┃ HOLDS until 2400.0, fence 2
!  502.000  ┊                               ┃ writes: accepted
   800.000    goes on                       ┃
   800.000    LOST: its time ran out before ┃
              a renewal was confirmed       ┃
!  810.000    writes: accepted              ┃
   900.000                                    CRASHES
  2500.000                                                                    end

fences: 1 is 1700000000000000, 2 is 1700000000500000

! R4 a write of p1/t1 with fence 1 was accepted at 810.000 ms, after 2
"""


def test_how_it_looks() -> None:
    drawn = draw(OVERTAKEN, check(OVERTAKEN))
    assert drawn == DRAWN.strip("\n"), "\n" + drawn


def test_names_of_lanes_locks_and_refusals() -> None:
    events = [
        Event(1, "ask", "a", "x", until=1),
        Event(1.1, "busy", "a", "x"),
        Event(1.2, "taken", "b", "y", fence=7, until=inf),
        Event(1.25, "renewed", "b", "y", until=3),
        Event(1.3, "write", "b", "y", fence=7, note="refused"),
        Event(1.4, "fault", "", note="slow", until=1.5),
        Event(1.5, "healed", "", note="slow"),
        Event(1.6, "left", note="a key"),
    ]
    drawn = draw(events, [Violation("R9", "left behind: a key")], names={"a": "Ann", "b": "Bob"})
    assert drawn.splitlines() == [
        "        ms    Ann                             Bob",
        "     0.000    asks x, waits 0 ms",
        "   100.000    busy x, gives up",
        "   200.000                                  ┃ HOLDS y forever, fence 7",
        "   250.000                                  ┃ renewed y until 2000.0",
        "   300.000                                  ┃ writes: REFUSED, fence 7",
        "   400.000                                  ┃                                 * slow for 100 ms",
        "   500.000                                  ┃                                 * over: slow",
        "   600.000                                  ┃                                 left behind: a key",
        "",
        "! R9 left behind: a key",
    ]


def test_it_fits_a_terminal() -> None:
    for workers in (1, 2, 3):
        events = [
            Event(1 + n / 10, "failed", f"process-{n % workers}/thread", "x", note="a long word " * 9) for n in range(10)
        ] + [Event(3, "granted", "server", "x", "process-1/thread#1", until=8)]
        assert max(map(len, draw(events).splitlines())) <= WIDTH
    assert draw([]) == "        ms"
