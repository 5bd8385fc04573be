"""Templates such as ``"report:{user_id}"``: names that are filled from the arguments of a call."""

from __future__ import annotations

import functools
import inspect
import re
import string
from collections.abc import Callable, Collection, Iterable
from typing import Any

from holdfast._api.functions import named
from holdfast.errors import ConfigError


class Filled:
    """Templates, such as ``"price:{sku}"``, to be filled from the arguments of a function's calls, including defaults. Raises
    ConfigError if a template is invalid.

    ``ignore`` names the parameters that the first template may leave out, because the result does not depend on them. None: the
    first template may leave out any parameter. `locked` passes None, because calls with different arguments may share a lock.
    """

    def __init__(self, function: Callable[..., Any], *templates: str, ignore: Collection[str] | None = None) -> None:
        try:
            self._signature = inspect.signature(function)
        except ValueError:  # A built-in function such as max.
            raise ConfigError(
                f"the arguments of {named(function)} have no names that a template could use; wrap it in a function with named "
                "arguments",
                parameter="function",
            ) from None
        if ignore is not None and (isinstance(function, functools.partial) or inspect.ismethod(function)):
            raise ConfigError(
                f"{named(function)} has arguments bound to it that no template can name, so calls with other bound values "
                'would share a key; decorate the function inside its class (ignore="self" leaves the instance out of the key), '
                "or a function that takes all these values as arguments",
                parameter="function",
            )
        parameters = self._signature.parameters
        self._templates = templates
        fields = [fields_of(template, parameters) for template in templates]
        if ignore is not None:
            _refuse_gaps(function, templates[0], set(fields[0]), parameters, ignore)
        plain = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._plain = tuple(parameters) if all(one.kind in plain for one in parameters.values()) else None
        """Names of the parameters, if all of them can be passed by position; else None."""

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Return the filled templates for one call. Raises TypeError if the arguments do not fit the function."""
        plain = self._plain
        if plain is not None and len(args) == len(plain) and not kwargs:
            arguments = dict(zip(plain, args, strict=True))  # Binding would take a third of the time of a round trip.
        else:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
        return [template.format_map(arguments) for template in self._templates]


def checked_ignore(given: object) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (None,)
    names = tuple(one for one in found if isinstance(one, str))
    if len(names) != len(found):
        raise ConfigError(f"ignore must be names of parameters, not {given!r}", parameter="ignore")
    return names


def _refuse_gaps(
    function: Callable[..., Any], template: str, filled: set[str], parameters: Collection[str], ignore: Collection[str]
) -> None:
    """Raise ConfigError if calls that differ in an argument outside of the key would get the same result."""
    for name in ignore:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise ConfigError(f"ignore: {named(function)} has no parameter {name!r} ({known})", parameter="ignore")
        if name in filled:
            raise ConfigError(f"ignore: {name!r} is part of the template {template!r}; remove one of them", parameter="ignore")
    missing = [name for name in parameters if name not in filled and name not in ignore]
    if missing:
        several = len(missing) > 1
        fields, names = "".join(f"{{{name}}}" for name in missing), ", ".join(repr(name) for name in missing)
        raise ConfigError(
            f"template {template!r} leaves out the argument{'s' if several else ''} {names} of {named(function)}: calls that "
            f"differ only there would get the same result; put {fields} into the template, or pass ignore=({names},) if the "
            "result does not depend on it",
            parameter="template",
        )


def fields_of(template: str, parameters: Collection[str] | None) -> list[str]:
    """Return the parameters that a template names.

    Raises ConfigError if the template contains anything but plain names from ``parameters`` (None: any names).
    """
    if not isinstance(template, str):
        raise ConfigError(f"template must be a str, not {type(template).__name__}", parameter="template")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"template {template!r}: {error}", parameter="template") from None
    fields = [field for _, field, _, _ in parts if field is not None]
    for _, field, spec, conversion in parts:
        if field is not None and not (field.isidentifier() and (parameters is None or field in parameters)):
            known = "" if parameters is None else f" ({', '.join(parameters) or 'none'})"
            raise ConfigError(
                f"template {template!r}: {{{field}}} must name a parameter{known}, without attributes or indexes",
                parameter="template",
            )
        if conversion not in {None, "r", "s", "a"}:
            raise ConfigError(f"template {template!r}: unknown conversion !{conversion}", parameter="template")
        if spec and "{" in spec:
            raise ConfigError(f"template {template!r}: a format inside a format is not allowed", parameter="template")
    if not fields and (percent := re.search(r"%[sdr(]", template)):
        how = f"write the name of a parameter in braces instead of {percent[0]}, as in 'report:{{day}}'"
        raise ConfigError(f"template {template!r} is the same for all calls: {how}", parameter="template")
    return fields
