"""The head of a bundle's README as dataset hubs read it: YAML between two lines of dashes.

`datasets.load_dataset` finds there which of the files holds the rows. [Source: the dataset card of
Hugging Face's hub, huggingface.co/docs/hub/datasets-cards.]
"""

from __future__ import annotations

import yaml

from synthdp.bundle.metadata.parquet import PARQUET_NAME
from synthdp.bundle.wording import title_of
from synthdp.spec.model import ReleaseSpec

# The hub's own names of licences, which are SPDX's in small letters but for these.
_RENAMED = {"odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "pddl-1.0": "pddl"}
_LICENCES = {
    *_RENAMED.values(),
    *("cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nd-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"),
    *("cc-by-nc-nd-4.0", "cdla-permissive-2.0", "etalab-2.0", "mit", "apache-2.0", "bsd-3-clause"),
}
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")


def front_matter(spec: ReleaseSpec) -> str:
    """The lines between the dashes, and the dashes; of the spec alone."""
    size = size_category(spec.sampling.rows or spec.dataset.rows.value)
    head = {
        "pretty_name": quoted(title_of(spec.dataset)),
        **_licence(spec.dataset.licence),
        "size_categories": f"[{quoted(size)}]",
    }
    rest = {
        "tags": ["synthetic", "differential-privacy", "tabular"],
        "configs": [{"config_name": "default", "data_files": PARQUET_NAME}],
    }
    lines = "".join(f"{key}: {value}\n" for key, value in head.items())
    return f"---\n{lines}{yaml.safe_dump(rest, sort_keys=False)}---\n"


def quoted(words: str) -> str:
    """A text in YAML's quotes, its signs as codes: readers of Markdown that do not know of such a
    head draw nothing of it.

    >>> print(quoted("Patients <b>"))
    "Patients \\U0000003cb\\U0000003e"
    """
    plain = " ".join(words.split())
    return '"' + "".join(c if c.isalnum() or c == " " else f"\\U{ord(c):08x}" for c in plain) + '"'


def size_category(rows: int) -> str:
    """The hub's name for so many rows.

    >>> size_category(999), size_category(1000)
    ('n<1K', '1K<n<10K')
    """
    bounds = (10 ** (3 + i) for i in range(len(_SIZES)))
    named = dict(zip(bounds, _SIZES, strict=True))
    return next((name for bound, name in named.items() if rows < bound), "1B<n<10B")


def _licence(stated: str | None) -> dict[str, str]:
    if not stated:
        return {}
    name = _RENAMED.get(stated.lower(), stated.lower())
    if name in _LICENCES:
        return {"license": name}
    return {"license": "other", "license_name": quoted(stated)}
