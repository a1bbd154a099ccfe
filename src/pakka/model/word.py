"""Words that an option may be. Of a pipeline file they are checked where it is read; of what is written in Python, here."""

from __future__ import annotations

from typing import Literal, get_args, get_origin, get_type_hints

from pakka.errors import ConfigError
from pakka.model.id import nearest


def check_words(whose: str, options: object) -> None:
    """Refuse a word that an option does not have: what compares it with each of its words would take it for the last one."""
    for name, hint in get_type_hints(type(options)).items():
        words = get_args(hint) if get_origin(hint) is Literal else ()
        if words and (word := getattr(options, name)) not in words:
            raise ConfigError(f"{whose}: there is no `{name}` {word!r}", hint=nearest(str(word), map(str, words)))
