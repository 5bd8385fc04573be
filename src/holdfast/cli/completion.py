"""``holdfast completion SHELL``: print the script with which a shell completes subcommands, options and their values.

`packaging/command_line.py` writes the scripts, from the parsers of all subcommands, so that pressing Tab starts no Python.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files

SCRIPTS = {"bash": "holdfast.bash", "zsh": "_holdfast", "fish": "holdfast.fish"}
"""The file with the script of each shell, in the folder ``share``. The wheel installs it where the shell looks for
completions."""

_EPILOG = """\
A shell finds the script by itself if holdfast is installed for the system. For
another installation, such as one in a virtual environment, add a line:

  bash   echo 'source <(holdfast completion bash)' >> ~/.bashrc
  zsh    echo 'source <(holdfast completion zsh)' >> ~/.zshrc
         (after the line with compinit)
  fish   holdfast completion fish \\
         > ~/.config/fish/completions/holdfast.fish"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="shell that reads the script: bash, zsh or fish")


def main(args: argparse.Namespace) -> int:
    sys.stdout.write(files("holdfast.cli").joinpath("share", SCRIPTS[args.shell]).read_text(encoding="utf-8"))
    return 0
