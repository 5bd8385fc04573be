"""Is the public interface what is written down? See `api.public`."""

from __future__ import annotations

from api import public


def test_names_and_signatures() -> None:
    assert public.names() == public.NAMES.read_text(), "run `make api`, and review what it changes"


def test_help() -> None:
    assert public.helps() == public.HELP.read_text(), "run `make api`, and review what it changes"
