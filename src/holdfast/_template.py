"""Names made from the arguments of a call: ``"report:{user_id}"``."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Collection
from typing import Any

from holdfast.errors import ConfigError


class Filled:
    """Fills templates from the arguments of a function's calls, defaults included. Raises ConfigError for bad templates."""

    def __init__(self, function: Callable[..., Any], *templates: str) -> None:
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters
        self._templates = templates
        for template in templates:
            fields_of(template, parameters)
        plain = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._plain = tuple(parameters) if all(one.kind in plain for one in parameters.values()) else None
        """The parameters, where arguments alone may say what they are."""

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """What the templates become for one call. Raises TypeError, as the call would."""
        plain = self._plain
        if plain is not None and len(args) == len(plain) and not kwargs:
            arguments = dict(zip(plain, args, strict=True))  # binding takes as long as a third of a trip to the server
        else:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
        return [template.format_map(arguments) for template in self._templates]


def fields_of(template: str, parameters: Collection[str] | None) -> list[str]:
    """The parameters a template names. Raises ConfigError for anything but plain names: of these parameters; None: any."""
    if not isinstance(template, str):
        raise ConfigError(f"template must be str, not {type(template).__name__}", parameter="template")
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
            raise ConfigError(f"template {template!r}: there is no conversion !{conversion}", parameter="template")
        if spec and "{" in spec:
            raise ConfigError(f"template {template!r}: a format within a format is not allowed", parameter="template")
    return fields
