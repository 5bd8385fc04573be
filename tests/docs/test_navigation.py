"""The site has every page in its navigation, and every public name in its reference. `make docs` tests the built site."""

from __future__ import annotations

from prepare import navigation, uris
from reference import listed, public


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(navigation()) == uris()


def test_every_public_name_is_in_the_reference_once() -> None:
    """A new name needs a line in website/reference.py."""
    names = {f"{origin}.{name}" for module in public().values() for name, origin in module.items()}
    assert sorted(listed()) == sorted(names)
