"""Write what the wheel contains about the command line: the completion scripts of three shells, and the man page.

python packaging/command_line.py     # writes the files in src/holdfast/cli/share again (`make api`)

They are written from the parsers of the subcommands, so they name each option. They are kept in the repository: building the
wheel needs no import of the package, and a change of them is reviewed. A test compares them with the parsers.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast import cli
from holdfast.cli import exit_codes

SHARE = Path(cli.__file__).parent / "share"
WRITTEN = "written by `make api` from the parsers of the subcommands"


class Option(NamedTuple):
    """An option of a subcommand, as ``-w, --wait TIME``."""

    flags: tuple[str, ...]
    value: str
    """Name of its value; empty if it takes none."""
    choices: tuple[str, ...]
    help: str
    excludes: tuple[str, ...]
    """All options that cannot stand beside this one, itself included unless it may be repeated."""


class Word(NamedTuple):
    """An argument of a subcommand that is not an option, as ``NAME``."""

    name: str
    choices: tuple[str, ...]
    help: str
    many: bool


class Subcommand(NamedTuple):
    """A subcommand, with all that its parser knows."""

    name: str
    usage: str
    summary: str
    epilog: str
    options: tuple[Option, ...]
    words: tuple[Word, ...]
    takes_command: bool


def subcommands() -> list[Subcommand]:
    """Return all subcommands."""
    return [_subcommand(name) for name in cli.COMMANDS]


def _subcommand(name: str) -> Subcommand:
    module, parser = cli.parser_of(name)
    options, words = [], []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of the options
        choices, text = tuple(map(str, action.choices or ())), str(action.help or "")
        if action.option_strings:
            value = "" if action.nargs == 0 else str(action.metavar or "|".join(choices) or action.dest.upper())
            options.append(Option(tuple(action.option_strings), value, choices, text, _excluded(parser, action)))
        else:
            words.append(Word(str(action.metavar or action.dest), choices, text, action.nargs == "*"))
    usage = parser.format_usage().removeprefix("usage: ").strip()
    takes = bool(getattr(module, "TAKES_COMMAND", False))
    return Subcommand(name, usage, cli.COMMANDS[name][1], parser.epilog or "", tuple(options), tuple(words), takes)


def _excluded(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, ...]:
    found = [] if isinstance(action, argparse._AppendAction) else [*action.option_strings]  # noqa: SLF001 - no public name for `append`
    for group in parser._mutually_exclusive_groups:  # noqa: SLF001 - argparse shows its groups in no other way
        actions = group._group_actions  # noqa: SLF001 - as above
        if action in actions:
            found += [flag for other in actions if other is not action for flag in other.option_strings]
    return tuple(found)


def _line(text: str) -> str:
    return " ".join(text.split())


def _valued(subcommand: Subcommand) -> list[str]:
    return [flag for option in subcommand.options if option.value for flag in option.flags]


FILES, FOLDERS = {"PATH", "FILE", "TARGET"}, {"DIR"}
"""Names of values that are paths."""

# bash


BASH = """\
# Completion of holdfast for bash, {written}.

_holdfast()
{{
    local line=${{COMP_LINE:0:COMP_POINT}} words word current previous options= valued= choices= command=
    local at=2 seen=0 length=0 offset=0
    COMPREPLY=()
    read -ra words <<< "$line"  # unlike COMP_WORDS, not split at = and :
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${{words[-1]}} previous=${{words[-2]}}
    if (( ${{#words[@]}} == 2 )); then
        COMPREPLY=($(compgen -W "{subcommands} help --help --version" -- "$current"))
        return
    fi
    case ${{words[1]}} in
        help) choices="{subcommands}" ;;
{cases}
        *) return ;;
    esac
    if [[ $command ]]; then
        while (( at < ${{#words[@]}} - 1 )); do
            word=${{words[at]}}
            if [[ $word == -- ]]; then
                (( at += 1, seen = 2 ))
                break
            elif [[ $word == -?* ]]; then
                [[ " $valued " == *" $word "* ]] && (( at += 1 ))
            elif (( ++seen == 2 )); then
                break
            fi
            (( at += 1 ))
        done
        if (( seen == 2 )) || [[ $seen == 1 && $current != -* ]]; then
            (( seen == 2 && at < ${{#words[@]}} )) || (( at = ${{#words[@]}} - 1 ))
            if (( seen == 1 )) && [[ " $valued " == *" $previous "* ]]; then
                :  # the value of an option after the name
            elif declare -F _command_offset > /dev/null; then
                for word in "${{words[@]:0:at}}"; do (( length += ${{#word}} )); done
                while (( length > 0 )); do (( length -= ${{#COMP_WORDS[offset]}}, offset += 1 )); done
                _command_offset "$offset"
                return
            elif (( at == ${{#words[@]}} - 1 )); then
                COMPREPLY=($(compgen -c -- "$current"))
                return
            else
                compopt -o default
                return
            fi
        fi
    fi
    if [[ $current == --*=* ]]; then
        previous=${{current%%=*}} current=${{current#*=}}
    fi
    case ${{words[1]}}:$previous in
{values}
    esac
    if [[ " $valued " == *" $previous "* ]]; then
        return
    fi
    case $choices in
        FILES)
            compopt -o filenames
            COMPREPLY=($(compgen -W "$options" -- "$current") $(compgen -f -- "$current"))
            ;;
        *) COMPREPLY=($(compgen -W "$options $choices" -- "$current")) ;;
    esac
}}

complete -F _holdfast holdfast
"""


def bash() -> str:
    """Return the script for bash."""
    found, cases, values = subcommands(), [], []
    for one in found:
        flags = " ".join(flag for option in one.options for flag in option.flags)
        choices = " ".join(choice for word in one.words for choice in word.choices)
        if any(word.name in FILES for word in one.words):
            choices = "FILES"
        command = " command=1" if one.takes_command else ""
        cases.append(f'        {one.name}) options="{flags}" valued="{" ".join(_valued(one))}" choices="{choices}"{command} ;;')
        for option in one.options:
            pattern = "|".join(f"{one.name}:{flag}" for flag in option.flags)
            if option.choices:
                values.append(
                    f'        {pattern}) COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return ;;'
                )
            elif option.value in FILES | FOLDERS:
                kind = "d" if option.value in FOLDERS else "f"
                way = f'compopt -o filenames; COMPREPLY=($(compgen -{kind} -- "$current")); return'
                values.append(f"        {pattern}) {way} ;;")
    names = " ".join(one.name for one in found)
    return BASH.format(written=WRITTEN, subcommands=names, cases="\n".join(cases), values="\n".join(values))


# zsh


ZSH = """\
#compdef holdfast
# Completion of holdfast for zsh, {written}.

_holdfast() {{
  local -a subcommands
  local curcontext=$curcontext state line
  typeset -A opt_args
  subcommands=(
{subcommands}
  )
  if (( CURRENT == 2 )); then
    if [[ $words[2] == -* ]]; then
      _arguments '(- *)'{{-h,--help}}'[show the help]' '(- *)'{{-V,--version}}'[show the version]'
    else
      _describe -t commands subcommand subcommands
    fi
    return
  fi
  shift words
  (( CURRENT -= 1 ))
  case $words[1] in
    help) (( CURRENT == 2 )) && _describe -t commands subcommand subcommands ;;
{cases}
  esac
}}

if [[ $funcstack[1] == _holdfast ]]; then
  _holdfast "$@"
else
  compdef _holdfast holdfast
fi
"""


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", _line(text)).replace("'", "'\\''")


def _zsh_value(name: str, choices: tuple[str, ...], other: str = " ") -> str:
    if choices:
        return f":{name}:({' '.join(choices)})"
    return f":{name}:{'_files' if name in FILES else '_files -/' if name in FOLDERS else other}"


def zsh() -> str:
    """Return the script for zsh."""
    cases = []
    for one in subcommands():
        specs = []
        for option in one.options:
            excluded = "(- *)" if "--help" in option.flags else f"({' '.join(option.excludes)})" if option.excludes else ""
            repeated = "" if option.flags[-1] in option.excludes else "*"
            value = _zsh_value(option.value, option.choices) if option.value else ""
            for flag in option.flags:
                equals = ("=" if flag.startswith("--") else "+") if option.value else ""
                specs.append(f"'{excluded}{repeated}{flag}{equals}[{_zsh_text(option.help)}]{value}'")
        for at, word in enumerate(one.words, 1):
            other = f'_guard "^-*" {word.name}'  # the message of a plain word would keep an option from being completed
            specs.append(f"'{'*' if word.many else at}{_zsh_value(word.name, word.choices, other)}'")
        if one.takes_command:
            specs.append("'*:::command: _normal'")
        lines = " \\\n        ".join(specs)
        cases.append(f"    {one.name})\n      _arguments -s -S \\\n        {lines}\n      ;;")
    described = [f"    '{one.name}:{_zsh_text(one.summary)}'" for one in subcommands()]
    described.append("    'help:show the help of a subcommand'")
    return ZSH.format(written=WRITTEN, subcommands="\n".join(described), cases="\n".join(cases))


# fish


FISH = """\
# Completion of holdfast for fish, {written}.

function __holdfast_is --description 'Whether this is the subcommand, and the cursor is not in a command after it'
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $argv[1]; and not __holdfast_skipped >/dev/null
end

function __holdfast_first --description 'Whether the cursor is at the first word after the subcommand, options left out'
    set -l words (commandline -opc)
    __holdfast_is $argv[1]; and test (count (string match --invert -- '-*' $words[3..-1])) -eq 0
end

function __holdfast_skipped --description 'Print the number of words before a command, if the cursor is in the command'
    set -l words (commandline -opc)
    test (count $words) -ge 3; and contains -- "$words[2]" {takers}; or return 1
    set -l valued {valued}
    set -l seen 0
    set -l at 3
    while test $at -le (count $words)
        if test "$words[$at]" = --
            echo $at
            return 0
        else if string match --quiet -- '-?*' $words[$at]
            contains -- $words[$at] $valued; and set at (math $at + 1)
        else
            set seen (math $seen + 1)
            if test $seen -eq 2
                echo (math $at - 1)
                return 0
            end
        end
        set at (math $at + 1)
    end
    test $seen -eq 1; and test $at -eq (math (count $words) + 1); or return 1
    not string match --quiet -- '-*' (commandline -ct); and count $words
end

function __holdfast_command --description 'Print what completes the command after the name'
    set -l words (commandline -opc) (commandline -ct)
    complete -C (string join ' ' -- $words[(math (__holdfast_skipped) + 1)..-1])
end

complete -c holdfast -f
complete -c holdfast -n __fish_use_subcommand -s h -l help -d 'show the help'
complete -c holdfast -n __fish_use_subcommand -s V -l version -d 'show the version'
complete -c holdfast -n __fish_use_subcommand -a help -d 'show the help of a subcommand'
complete -c holdfast -n '__holdfast_is help' -a '{subcommands}'
complete -c holdfast -n __holdfast_skipped -x -a '(__holdfast_command)'
{lines}
"""


def _fish_text(text: str) -> str:
    return "'" + _line(text).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_lines(one: Subcommand) -> Iterator[str]:
    yield f"complete -c holdfast -n __fish_use_subcommand -a {one.name} -d {_fish_text(one.summary)}"
    start = f"complete -c holdfast -n '__holdfast_is {one.name}'"
    for option in one.options:
        flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
        value = ""
        if option.value:
            value = " -r -F" if option.value in FILES | FOLDERS else " -x"
            value += f" -a '{' '.join(option.choices)}'" if option.choices else ""
        yield f"{start} {' '.join(flags)}{value} -d {_fish_text(option.help)}"
    for word in one.words:
        if word.choices:
            first = f"complete -c holdfast -n '__holdfast_first {one.name}'"
            yield f"{first} -a '{' '.join(word.choices)}'"
        elif word.name in FILES:
            yield f"{start} -F"


def fish() -> str:
    """Return the script for fish."""
    found = subcommands()
    takers = [one for one in found if one.takes_command]
    valued = sorted({flag for one in takers for flag in _valued(one)})
    return FISH.format(
        written=WRITTEN,
        takers=" ".join(one.name for one in takers),
        valued=" ".join(valued),
        subcommands=" ".join(one.name for one in found),
        lines="\n".join(line for one in found for line in _fish_lines(one)),
    )


# The man page


MAN = """\
.\\" The man page of holdfast, {written}.
.TH HOLDFAST 1 "" holdfast "User Commands"
.nh
.ad l
.SH NAME
holdfast \\- distributed locks on Redis or Valkey
.SH SYNOPSIS
.B holdfast
.I SUBCOMMAND
[options] ...
.br
.B holdfast help
.I SUBCOMMAND
.SH DESCRIPTION
holdfast runs commands under a lock on a Redis or Valkey server, and shows and revokes locks there.
A TIME is in seconds, or 500ms, 5m, 2h, 1d.
.SH SUBCOMMANDS
{subcommands}
.SH EXIT STATUS
Of every subcommand:
{codes}
.SH ENVIRONMENT
.TP
.B HOLDFAST_URL
URL of the server, or of several servers, separated by blanks.
.TP
.B REDIS_URL
The same, if HOLDFAST_URL is not set.
.TP
.B HOLDFAST_TICKET
The ticket for
.B holdfast release
without \\-\\-ticket\\-file.
.TP
.B NO_COLOR
If it is set and not empty, no output has colours.
.SH SEE ALSO
.BR flock (1),
.BR redis\\-server (1)
"""


def _roff(text: str) -> str:
    """Return text for the formatter: escaped, and without a line that begins as a request does."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in escaped.splitlines())


def _man_lines(one: Subcommand) -> Iterator[str]:
    yield f'.SS "{_roff(one.name)}"'
    yield f".B {_roff(one.usage)}"
    yield ".PP"
    yield _roff(f"{one.summary[0].upper()}{one.summary[1:]}.")
    for word in one.words:
        yield from (".TP", f".I {_roff(word.name)}", *_block(word.help))
    for option in one.options:
        if "--help" not in option.flags:
            value = f" \\fI{_roff(option.value)}\\fR" if option.value else ""
            flags = ", ".join(f"\\fB{_roff(flag)}\\fR" for flag in option.flags)
            yield from (".TP", f"{flags}{value}", _roff(_line(option.help)))
    if one.epilog:
        yield from (".PP", *_block(one.epilog))
    yield from (".PP", "Exit status:", *_codes(exit_codes.OF[one.name]))


def _block(text: str) -> Iterator[str]:
    """Yield lines of text, paragraph by paragraph. The lines of a list or an example, which are indented, stay lines."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        kept = re.search(r"\S  \S|^  ", paragraph)
        yield from (".nf", _roff(textwrap.dedent(paragraph)), ".fi") if kept else (_roff(_line(paragraph)),)


def _codes(codes: dict[str, str]) -> list[str]:
    return [line for code, meaning in codes.items() for line in (".TP", f".B {_roff(code)}", _roff(meaning))]


def man() -> str:
    """Return the man page."""
    return MAN.format(
        written=WRITTEN,
        subcommands="\n".join(line for one in subcommands() for line in _man_lines(one)),
        codes="\n".join(_codes(exit_codes.EVERY)),
    )


def written() -> dict[str, str]:
    """Return the files by their names in the folder ``share``."""
    return {"holdfast.bash": bash(), "_holdfast": zsh(), "holdfast.fish": fish(), "holdfast.1": man()}


if __name__ == "__main__":
    for name, text in written().items():
        (SHARE / name).write_text(text, encoding="utf-8")
