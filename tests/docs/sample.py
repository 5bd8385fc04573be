"""A sample of the prose, to be read by a stranger: ``PYTHONPATH=tests python -m docs.sample [COMMIT]``.

It draws docstrings, errors and help lines of the sources; ``--pages`` draws sentences of the documentation instead. The digest
of the commit chooses the texts, so nobody can choose them; ``--round 2`` chooses others. Beside each text stands what a reader
has read before it: the first sentences of the module and class, or the headings and the sentence before.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
from collections.abc import Iterable

from docs.pages import ROOT
from docs.prose import USERS_PAGES, Prose, read, read_pages

SIZE = 50


def sample(texts: Iterable[Prose], commit: str, turn: int, size: int = SIZE) -> list[Prose]:
    """Choose the texts whose digest with the commit's is lowest."""

    def rank(text: Prose) -> str:
        return hashlib.sha256(f"{commit} {turn} {text}".encode()).hexdigest()

    return sorted((text for text in texts if text.kind != "comment"), key=rank)[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a sample of the prose, as it is checked out.")
    parser.add_argument("commit", nargs="?", default="HEAD", help="the commit whose digest chooses (default: HEAD)")
    parser.add_argument("--round", type=int, default=1, metavar="N", help="choose another sample of the same commit")
    parser.add_argument("--pages", action="store_true", help="choose sentences of README and docs")
    chosen = parser.parse_args()
    command = ["git", "rev-parse", "--verify", f"{chosen.commit}^{{commit}}"]
    commit = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, round {chosen.round}")
    for number, text in enumerate(sample(read_pages(USERS_PAGES) if chosen.pages else read(), commit, chosen.round), 1):
        print(f"\n{number:2} {text.kind}  {text}")
        for sentence in text.inside:
            print(f"     inside: {sentence}")
        if text.context:
            print(f"     {text.context}")


if __name__ == "__main__":
    main()
