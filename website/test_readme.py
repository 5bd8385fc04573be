"""README as PyPI shows it."""

from __future__ import annotations

import re
import runpy

from readme_renderer import markdown

from prepare import ROOT


def test_pypi_renders_all_of_the_readme() -> None:
    """PyPI drops what its renderer does not know. Every heading, table and program has to be left."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = markdown.render(text)
    assert shown
    assert (
        re.sub(r"<[^>]*>", "", " ".join(re.findall(r"<h[123].*?</h[123]>", shown))).split()
        == " ".join(re.findall(r"^#+ (.*)$", text, re.MULTILINE)).replace("`", "").split()
    )
    assert shown.count("<table") == len(re.findall(r"^\|(?:-|--:|\|)+$", text, re.MULTILINE))
    assert shown.count("<pre") == text.count("\n```") // 2
    left = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", shown, flags=re.DOTALL)
    assert not re.search(r"\]\(|\*\*|```|&lt;!--", left)


def test_every_link_leads_somewhere_on_pypi() -> None:
    """As soon as the repository has an address, which `make release-check` asks for."""
    release = runpy.run_path(str(ROOT / "packaging" / "release.py"))
    address = release["address_of_files"]() or "https://example.org/holdfast/blob/main/"
    for page in release["ON_PYPI"]:
        shown = markdown.render(release["with_address"](page, release["read"](page), address))
        assert shown
        links = re.findall(r'<a href="(?!#user-content-)([^"]*)"', shown)  # the others are PyPI's own, beside each heading
        assert links
        for link in links:
            assert link.startswith("https://")
            assert not link.startswith(address) or (ROOT / link.removeprefix(address).partition("#")[0]).exists()
