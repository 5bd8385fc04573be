"""Models, scripts and the page about them name each other; the table of variants is complete. None of this needs spin."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
MODELS = Path(__file__).parents[2] / "models"
PAGE = (MODELS.parent / "docs" / "design" / "models.md").read_text(encoding="utf-8")
NAMES = sorted(path.stem for path in MODELS.glob("*.pml"))
SCRIPTS = sorted((SOURCE / "_lua").rglob("*.lua"))


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("models_check", MODELS / "check.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


check = load()


def text_of(name: str) -> str:
    return (MODELS / f"{name}.pml").read_text(encoding="ascii")


def speaks_of(name: str) -> list[str]:
    """Files, below the package, that a model says it is about."""
    match = re.search(r"^ \* SPEAKS OF +(.+)$", text_of(name), re.MULTILINE)
    return match[1].split() if match else []


def table(name: str) -> list[str]:
    """The variants of a model that the page lists."""
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"no section about {name}"
    rows = re.findall(r"^\| (?:`([^`]+)`|as it is) \|", section[1], re.MULTILINE)
    return [str(row) for row in rows]


def test_the_table_knows_all_models() -> None:
    assert {variant.model for variant in check.VARIANTS} == set(NAMES)


def test_a_model_says_what_it_speaks_of() -> None:
    assert [name for name in NAMES if not speaks_of(name)] == []
    assert [(name, file) for name in NAMES for file in speaks_of(name) if not (SOURCE / file).is_file()] == []


def model_of(script: Path) -> str:
    """The model that a script names."""
    match = re.search(r"^-- MODEL +models/(\w+)\.pml$", script.read_text(encoding="ascii"), re.MULTILINE)
    return match[1] if match else ""


def test_a_script_names_a_model_that_speaks_of_it() -> None:
    named = {path.relative_to(SOURCE).as_posix(): model_of(path) for path in SCRIPTS}
    assert [name for name, model in named.items() if model not in NAMES or name not in speaks_of(model)] == []


def variants_of(name: str) -> list[str]:
    return [variant.defines for variant in check.VARIANTS if variant.model == name]


def test_each_model_has_one_that_holds_and_three_that_must_not() -> None:
    assert [name for name in NAMES if len(set(variants_of(name))) != len(variants_of(name))] == []
    wrong = {name: [bool(variant.wrong) for variant in check.VARIANTS if variant.model == name] for name in NAMES}
    assert [name for name, each in wrong.items() if all(each) or sum(each) < 3] == []


def test_a_wrong_variant_names_the_assertion_that_it_breaks() -> None:
    """By more of it than what any assertion begins with."""
    assert [(v.model, v.defines) for v in check.VARIANTS if v.wrong and v.breaks in "assert("] == []


def switches(name: str) -> set[str]:
    """Return the names that a model asks for when it is compiled."""
    text = text_of(name)
    lines = re.findall(r"^#(?:el)?if (.+)$", text, re.MULTILINE)
    known = set(re.findall(r"^#(?:ifdef|ifndef) (\w+)", text, re.MULTILINE))
    return known | {word for line in lines for word in re.findall(r"defined\((\w+)", line)}


def test_variants_are_what_the_model_has() -> None:
    """Nothing is switched that the model does not know, and it has no switch that nobody uses."""
    used = {name: {word.split("=")[0] for defines in variants_of(name) for word in defines.split()} for name in NAMES}
    assert used == {name: switches(name) for name in NAMES}


def test_the_page_lists_all_variants() -> None:
    assert {name: table(name) for name in NAMES} == {name: variants_of(name) for name in NAMES}


def test_the_page_has_no_other_models() -> None:
    assert {f"{heading}.pml" for heading in re.findall(r"^## ([a-z_]+)$", PAGE, re.MULTILINE)} == {
        f"{name}.pml" for name in NAMES
    }


HOLDS = check.Variant("lease", "", "", "as it is")
WRONG = check.Variant("lease", "NO_GUARD", "written", "wrong")


@pytest.mark.parametrize(
    ("variant", "result", "expected"),
    [
        (HOLDS, check.Result(True, "", 10, 0.1), True),
        (HOLDS, check.Result(False, "assert(written)", 10, 0.1), False),
        (HOLDS, check.Result(True, "", 10, 0.1, "the search was not complete"), False),
        (WRONG, check.Result(False, "assert(pen>=written)", 10, 0.1), True),
        (WRONG, check.Result(True, "", 10, 0.1), False),
        (WRONG, check.Result(False, "assert(fence>issued)", 10, 0.1), False),
        (WRONG, check.Result(False, "", 0, 0.0, "syntax error"), False),
    ],
)
def test_what_is_as_expected(variant: object, result: object, expected: bool) -> None:
    assert check.as_expected(variant, result) is expected
    last = list(check.lines([variant], iter([result])))[-1]
    assert last.startswith("ok") is expected
