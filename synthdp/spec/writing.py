"""How a draft spec is written: from templates, with values as YAML on one line."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synthdp.spec.load.yaml_tree import TO_FILL, plain

FOLDER = Path(__file__).with_name("templates")


class Blank(str):
    """A place that is left to be filled in, and what belongs there.

    It is written with the tag `TO_FILL`, which no text of a table or a code book has, whatever its
    characters; the loader of specs refuses it by its tag.
    """


def slug_of(csv: Path) -> str:
    """A dataset id from the name of a file."""
    letters = unicodedata.normalize("NFKD", csv.stem)
    plain_letters = "".join(c for c in letters if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain_letters).strip("-._")[:64] or "table"


def written(template: str, **values: Any) -> str:
    """A draft, from a template of the folder beside this module.

    For a table of few rows it has no holdout and no attack. Of fewer than 500 rows a fifth is at
    most a hundred. On 50 rows of each of two classes an AUC of .5 has the 95% interval .5 +- .11
    [Hanley and McNeil 1982: variance (n + 1) / (3 n^2) for n / 2 rows of each], so that test rows
    judge next to nothing, and noise weighs a quarter more on the rows that are left. The shadow
    models of the membership attack draw 300 rows by default: most of such a table, so that they are
    hardly independent, and their interval is too narrow.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"yaml": yaml_value, "lines": yaml_lines}
    return environment.get_template(f"{template}.yaml.j2").render(values)


def yaml_lines(entries: Mapping[str, Any], indent: int) -> str:
    return "\n".join(f"{' ' * indent}{key}: {yaml_value(value)}" for key, value in entries.items())


def yaml_value(value: object) -> str:
    """A value on one line; text goes in quotes unless it is plainly text."""
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{yaml_value(key)}: {yaml_value(entry)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if isinstance(value, Blank):
        return f"{TO_FILL} {json.dumps(value)}"
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_. -]*(?<! )", value) and plain(value) == value:
        return value
    # YAML reads what cannot be printed by its code, inside double quotes.
    letters = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in letters)


def yaml_text(content: Mapping[str, Any], *, width: int = 80) -> str:
    """A mapping as YAML text without aliases, which the loader refuses.

    Raises:
        yaml.YAMLError, RecursionError: it holds a value that YAML does not have.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(dict(content), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=width)
