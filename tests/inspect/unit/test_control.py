"""Control records are read strictly: whatever stands there, a reader gets a record or is told that there is none."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import strategies as st

from holdfast._api.inspect import _party
from holdfast._core import control_records
from holdfast._core.deadlock import cycles
from holdfast._core.schedule.commands import overview
from holdfast._runtime.process import describe
from support.fuzzing import AMOUNTS, GOOD, MALFORMED, ODD_NUMBERS, WAIT, explore, json_values, odd_text


@pytest.mark.parametrize("raw", MALFORMED, ids=lambda raw: raw[:30].decode("ascii", "replace"))
def test_what_is_no_record_is_told_by_the_id_of_its_process(raw: bytes) -> None:
    assert describe(raw, "0123456789ab") == "process 0123456789ab"
    assert cycles.links("p", raw) == []
    assert _party("p", raw, b"hf:{b}")["host"] is None


def test_a_record_is_read_as_it_was_written() -> None:
    said = control_records.read(control_records.write(GOOD, [WAIT]))
    assert said == ("h", 7, "night shift", (("hf:{b}", 3.0, "7f", "T", ("hf:{a}",), True),), {})
    assert control_records.read(json.dumps(GOOD)) == ("h", 7, "night shift", (), {})


@pytest.mark.parametrize(("sign", "more"), [("", 1), ("-", 0)])
def test_a_number_in_a_record_is_no_longer_than_one_of_64_bits(sign: str, more: int) -> None:
    for digits, is_read in ((control_records.DIGITS + more, True), (control_records.DIGITS + more + 1, False)):
        text = json.dumps(GOOD)[:-1] + f', "of a later release": {sign}{"9" * digits}}}'
        assert (control_records.read(text) is not None) is is_read


def test_a_record_has_room_for_what_fits_and_no_more() -> None:
    waits = [{**WAIT, "id": f"{n:x}"} for n in range(200)]
    text = control_records.write(GOOD, waits)
    assert 3800 < len(text.encode()) <= control_records.LONGEST
    said = control_records.read(text)
    assert said is not None
    assert [wait.owner for wait in said.waits] == [f"{n:x}" for n in range(len(said.waits))]
    assert control_records.read(control_records.write(GOOD, [{**WAIT, "lock": "x" * 5000}])) == ("h", 7, "night shift", (), {})


def test_a_record_is_filled_up_to_its_limit() -> None:
    """But for the blank and the comma that the first wait does not need."""
    waits = [{**WAIT, "id": f"{n:x}"} for n in range(3)]
    left = control_records.LONGEST - len(control_records.write(GOOD, waits).encode()) - len(", ")
    fits, more = ([*waits[:2], {**waits[2], "lock": "x" * (len(WAIT["lock"]) + length)}] for length in (left, left + 1))
    assert len(control_records.write(GOOD, fits).encode()) == control_records.LONGEST - len(", ")
    assert control_records.write(GOOD, more) == control_records.write(GOOD, waits[:2])


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_text_is_a_record_or_none(amount: int) -> None:
    def holds(raw: bytes) -> None:
        shown = describe(raw, "0123456789ab")
        assert shown is not None
        assert shown.isprintable()
        assert len(shown) <= 300
        party = _party("p", raw, b"hf:{b}")
        assert party["pid"] is None or 0 <= party["pid"] <= 2**53
        for link in cycles.links("p", raw):
            assert math.isfinite(link.since)
            json.dumps(cycles.shown((link,)).as_dict(), allow_nan=False, ensure_ascii=False).encode()

    field = json_values | st.sampled_from(ODD_NUMBERS).map(lambda number: f"\0{number}\0")
    waits = st.lists(
        st.fixed_dictionaries({key: field | st.just(value) for key, value in WAIT.items()}) | json_values, max_size=3
    )
    records = st.fixed_dictionaries(
        {key: field | st.just(value) for key, value in GOOD.items()}, optional={"waits": waits | json_values}
    )
    explore(amount, holds, odd_text, json_values.map(written), records.map(written))


def written(value: object) -> bytes:
    """As JSON, with the odd numbers, which Python does not have, as they are."""
    return json.dumps(value).replace('"\\u0000', "").replace('\\u0000"', "").encode()


def test_each_lock_has_a_label_of_its_own() -> None:
    said = control_records.read(
        control_records.write({**GOOD, "label": None}, [], {b"hf:{a}": "importer", b"hf:{b}": "mailer"})
    )
    assert said is not None
    assert [said.label_of(key) for key in (b"hf:{a}", b"hf:{b}", b"hf:{c}")] == ["importer", "mailer", ""]


@pytest.mark.parametrize("label", ["x", "x" * 200, "\N{SNOWMAN}" * 200, "\N{GRINNING FACE}" * 200, '"' * 200])
def test_labels_leave_room_for_the_rest_of_a_record(label: str) -> None:
    text = control_records.write(GOOD, [WAIT], {b"hf:{%d}" % n: label for n in range(1000)})
    said = control_records.read(text)
    assert said is not None
    assert len(said.waits) == 1
    assert 1 <= len(said.labels) <= control_records.MOST_LABELS
    assert len(text.encode()) <= control_records.LONGEST


def test_a_label_without_room_leaves_out_no_other_one() -> None:
    """Emoji were counted as escapes: a label that is allowed had no room, nor had all those behind it."""
    apis = "\N{GRINNING FACE}" * 200
    labels = {b"hf:{%d}" % n: label for n, label in enumerate(("a" * 200, apis, "importer", apis, apis, "mailer"))}
    said = control_records.read(control_records.write(GOOD, [], labels))
    assert said is not None
    assert [said.labels.get(control_records.mark_of(key)) for key in labels] == [
        "a" * 200,
        apis,
        "importer",
        apis,
        None,
        "mailer",
    ]


@pytest.mark.parametrize("letter", ["x", '"', "\N{SNOWMAN}", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("waits", [[], [{**WAIT, "who": "\N{GRINNING FACE}" * 200}] * 10])
def test_a_record_of_the_longest_texts_is_read(letter: str, waits: list[dict[str, object]]) -> None:
    """One that is longer than a record may be counts as none."""
    facts = {"host": "h" * 253, "pid": 2**22, "label": letter * 200, "start": 1_700_000_000.123}
    labels = {b"hf:{%d}" % n: letter * 200 for n in range(100)}
    text = control_records.write(facts, waits, labels)
    assert len(text.encode()) <= control_records.LONGEST
    said = control_records.read(text)
    assert said is not None
    assert (said.label, *said.labels.values()) == (letter * 200,) * (1 + len(said.labels))
    assert said.labels


def test_half_a_character_leaves_a_record_readable() -> None:
    said = control_records.read(control_records.write({**GOOD, "host": "h\udcff"}, [{**WAIT, "who": "\ud800"}]))
    assert said is not None
    assert (said.host, said.waits[0].who) == ("h?", "?")


RUN, ENTRY = b"1 1 1 1 h here", b"0 done 1 1 1 1 1 1 1\nhere\ntext"


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"x",
        b"1 1 1 1",
        b"0 done 1 1 1 1 1 1\nhere\ntext",
        RUN.replace(b"1 1", b"1_0 1", 1),
        RUN.replace(b"1 1", "\N{ARABIC-INDIC DIGIT ONE} 1".encode(), 1),
        RUN.replace(b"1 1", b"9" * 5000 + b" 1", 1),
        ENTRY.replace(b"1 1", b"1_0 1", 1),
        ENTRY.replace(b"1 1", b"+1 1", 1),
        ENTRY.replace(b"1 1", b"9" * 20 + b" 1", 1),
    ],
)
def test_an_odd_run_or_entry_of_a_job_hides_no_other(odd: bytes) -> None:
    (job,) = overview(["job"], [1, 1, [], [b"{}", 0, 0, 0, [odd, 5, RUN, 5], [odd, ENTRY], b"", 1]]).jobs
    assert [run.host for run in job.running] == ["here"]
    assert [entry.text for entry in job.entries] == ["text"]


@pytest.mark.parametrize("odd", [b"", b"x there", b"1_0 there", b"9" * 5000 + b" there"])
def test_an_odd_process_that_serves_a_schedule_hides_no_other(odd: bytes) -> None:
    assert overview([], [1, 1, [odd, b"5 here"]]).runners == [(5, "here")]


def test_a_record_tells_as_many_of_the_locks_that_are_held_as_fit() -> None:
    assert control_records.first_of([]) == []
    assert control_records.first_of(["a", "x" * control_records.HOLDS, "b"]) == ["a", "b"], "a long one is left out"
    key = "k" * 96  # with quotes, comma and blank: 100 bytes
    assert len(control_records.first_of([key] * control_records.HOLDS)) == control_records.HOLDS // 100
