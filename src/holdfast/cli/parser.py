"""The parser of a subcommand: options of holdfast, a command after them, help within 80 columns, and errors of one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.cli import output

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Formatter(argparse.RawTextHelpFormatter):
    """A formatter of help whose output is the same with each version of Python."""

    def __init__(self, prog: str, **options: Any) -> None:
        # Without a given width, argparse imports shutil, with all compression formats, when the first option is added.
        super().__init__(prog, width=78, **options)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0 or sys.version_info >= (3, 13):
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"  # Python 3.13 and later print the value once, too


class Parser(argparse.ArgumentParser):
    """An argparse parser with one-line errors, the exit code of sysexits.h for bad usage, and no abbreviated options."""

    def __init__(self, prog: str, description: str, usage: str | None = None, epilog: str | None = None) -> None:
        super().__init__(prog, usage, description, epilog, formatter_class=Formatter, allow_abbrev=False)
        self._separated = False
        """True if `split` has found ``--`` and a command after it."""

    @property
    def subcommand(self) -> str:
        """Name of the subcommand; empty for ``holdfast`` itself."""
        return self.prog.partition(" ")[2]

    @property
    def known(self) -> list[str]:
        return list(self._option_string_actions)

    def format_usage(self) -> str:
        """Return the usage line: ``[options]``, the options that must be given, and the names of the positional arguments."""
        self._set_usage()
        return super().format_usage()

    def format_help(self) -> str:
        """Return the help, with the exit codes of the subcommand at its end."""
        from holdfast.cli import exit_codes  # imported late, because only the help shows them

        self._set_usage()
        return f"{super().format_help()}\n{exit_codes.text(self.subcommand)}"

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Write the help and flush it. If the write fails, raise OSError. Argparse would ignore that and exit with 0."""
        print(self.format_help(), end="", file=file)
        output.flush()

    def error(self, message: str) -> NoReturn:
        """Print a usage error as one line on stderr, and exit with 64. A ticket among the arguments is not printed."""
        from holdfast.cli import hints

        words = hints.for_words(message, self.subcommand, self._call, separated=self._separated)
        message = hints.for_ticket(message) or words or message
        output.say(f"{message} (see {self.prog} --help)")
        sys.exit(output.EX_USAGE)

    def check_options(self, arguments: list[str]) -> None:
        """End the process with a usage error if an argument is an unknown option."""
        for _ in self._words(arguments):
            pass

    def split(self, arguments: list[str]) -> tuple[list[str], list[str] | None]:
        """Return the arguments of holdfast, and the command that follows them; None if there is no command.

        The command begins after ``--``, or at the second word that is neither an option nor the value of an option. A command
        that begins without ``--`` must not contain ``--``. Otherwise, in ``my lock -- CMD``, ``lock`` would be the command,
        although the user only forgot to quote the name.
        """
        for number, at in enumerate(self._words(arguments)):
            if arguments[at] == "--":
                self._separated = at + 1 < len(arguments)
                return arguments[:at], arguments[at + 1 :]
            if number == 1:
                if "--" in arguments[at:]:
                    begins = f"write -- before {arguments[at]!r} if the command begins there"
                    self.error(f"two words stand before --: quote a name that contains blanks, or {begins}")
                return arguments[:at], arguments[at:]
        return arguments, None

    def _words(self, arguments: list[str]) -> Iterator[int]:
        """Yield the index of each argument that is neither an option nor the value of one, up to and including ``--``."""
        at = 0
        while at < len(arguments):
            word = arguments[at]
            if word == "--":
                yield at
                return
            if word.startswith("-") and word != "-":
                at += self._takes_next(word)
            else:
                yield at
            at += 1

    def _takes_next(self, word: str) -> bool:
        """Return True if the next argument is the value of this option. An unknown option ends the process with an error."""
        known = self._option_string_actions
        long, equals, _ = word.partition("=")
        if word.startswith("--"):
            if long not in known:
                self._refuse(long)
            if equals and known[long].nargs == 0:
                hint = "; for another directory, pass --url local:///DIRECTORY" if long == "--local" else ""
                self.error(f"{long} takes no value{hint}")
            return not equals and known[long].nargs != 0
        for at, letter in enumerate(word[1:], 2):  # -qw5 is -q -w 5
            if f"-{letter}" not in known:
                self._refuse(f"-{letter}")
            if known[f"-{letter}"].nargs != 0:
                return at == len(word)
        return False

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """End the process with a usage error and a hint if ``value`` is none of the choices of an argument."""
        if action.choices is None or value in action.choices:
            return
        from holdfast.cli import hints

        known = list(map(str, action.choices))
        name = str(action.metavar)  # the metavar of a single action is the action itself
        what = f"value of {action.option_strings[-1]}" if action.option_strings else name if name.isupper() else "ACTION"
        hint = hints.for_action(str(value), self.subcommand, known)
        self.error(f"no such {what}: {value}{hint}; it is one of {', '.join(known)}")

    def _refuse(self, option: str) -> NoReturn:
        from holdfast.cli import hints

        self.error(f"no such option: {option}{hints.for_option(option, self.subcommand, self.known)}")

    @property
    def _call(self) -> str:
        """The usage line in one line, without the word "usage"."""
        return " ".join(self.format_usage().split()[1:])

    def _set_usage(self) -> None:
        if self.usage is None:
            needed = [f"{one.option_strings[-1]} {one.metavar}" for one in self._actions if one.option_strings and one.required]
            words = [self._shown(action) for action in self._actions if not action.option_strings]
            self.usage = " ".join([self.prog, "[options]", *needed, *words])

    @staticmethod
    def _shown(action: argparse.Action) -> str:
        name = str(action.metavar or "{" + ",".join(action.choices or ()) + "}")
        return f"[{name}]" if action.nargs == "?" else f"[{name} ...]" if action.nargs == "*" else name
