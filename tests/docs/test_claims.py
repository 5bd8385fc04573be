"""Claims in the pages that a program can check: where things are."""

from __future__ import annotations

from docs.pages import ROOT


def test_the_architecture_page_names_every_module() -> None:
    text = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "holdfast"
    rooms = [room for name in ("_api", "_core", "_runtime", "_net") for room in (package / name).rglob("*.py")]
    if True:
        for file in [*package.glob("*.py"), *rooms]:
            name = file.relative_to(package).as_posix()
            assert file.stem.startswith("__") or f"`{name}`" in text, name
