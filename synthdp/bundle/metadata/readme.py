"""What a bundle says about the spec: the resolved public spec as YAML, and the README for
downstream users.

A steward's spec names files, databases, servers and addresses. None of them is needed to read the
release, so `public_spec` leaves them out or replaces them by values that still validate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synthdp.bundle.certificate.facts import Certificate
from synthdp.bundle.metadata.croissant import citation
from synthdp.bundle.metadata.datacard import NOT_FOR
from synthdp.bundle.wording import code, plain, up
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Compute, CsvSource, ParquetSource, ReleaseSpec, Signing, SqlSource

WITHHELD = "withheld"
SPEC_HEAD = """\
# The spec of this release with every default filled in. Left out: folders, database and server addresses,
# queries. `source` keeps its kind; a file keeps its name without the folder.
"""  # noqa: E501


def public_spec(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec that is published.

    Kept: all that says what was released and how. Replaced: the source's path (its last part
    stays), a SQL source's variable and query, the ledger's and MLflow's URLs, the compute backend
    and its
    address, the variable that names the signing key. Filled in: the number of sampled rows.
    """
    source = spec.dataset.source
    if isinstance(source, CsvSource | ParquetSource):
        source = source.model_copy(
            update={
                "path": source.path.replace("\\", "/").rstrip("/").rpartition("/")[2] or WITHHELD
            }
        )
    elif isinstance(source, SqlSource):
        source = SqlSource(kind="sql", url_env=WITHHELD.upper(), query=WITHHELD)
    return spec.model_copy(
        update={
            "dataset": spec.dataset.model_copy(update={"source": source}),
            "privacy": spec.privacy.model_copy(update={"ledger": None}),
            "sampling": spec.sampling.model_copy(
                update={"rows": spec.sampling.rows or spec.dataset.rows.value}
            ),
            "tracking": spec.tracking.model_copy(update={"uri": None}),
            "compute": Compute(device=spec.compute.device),
            "signing": Signing(),
        }
    )


def spec_yaml(spec: ReleaseSpec) -> str:
    """A spec as YAML that `synthdp.spec.load.loader` reads back to an equal spec; nothing is left
    to defaults.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    content = spec.model_dump(mode="json", exclude_none=True)
    for column in content["columns"].values():
        if "edges" in column or "derived" in column:
            del column["bins"]  # the contract takes one of the three
    return SPEC_HEAD + yaml.dump(
        content, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120
    )


def readme(spec: ReleaseSpec, certificate: Certificate, *, day: str) -> str:
    """The bundle's README, for people who will use the data; `day` is that of the release, as an
    ISO date.
    """
    title = plain(spec.dataset.title or spec.dataset.id)
    # Quoted, so that a publisher's words cannot pass for what this page states.
    about = "".join(
        f"\n> {plain(line)}".rstrip()
        for line in (spec.dataset.description or "").strip().splitlines()
    )
    rows = spec.sampling.rows or spec.dataset.rows.value
    held = "\n".join(map(code, spec.constraints))
    constraints = (
        "\nEvery row fulfils these constraints (a comparison with a missing value violates"
        f" none):\n\n{held}\n"
        if held
        else ""
    )
    licence = (
        plain(spec.dataset.licence)
        if spec.dataset.licence
        else "not stated: ask the publisher before you redistribute it"
    )
    record = (
        "| `privacy/deployment.yaml` | a record for the OpenDP Deployments Registry |\n"
        if spec.publication
        else ""
    )
    signed = certificate.signer is not None
    statement = (
        "| `privacy/statement.intoto.json` | the publisher's signature under all of them |\n"
        if signed
        else ""
    )
    key = (
        " (with `--key` and the publisher's public key, also who made it)"
        if signed
        else ". This bundle is unsigned: nothing in it proves who made it"
    )
    return f"""\
# {title}: synthetic data
{about}

`synthetic.csv` holds {rows:,} made-up rows with the columns of the original table. No row was copied from it: each was drawn from a model
that was fitted to the original with differential privacy.
{constraints}
## Guarantee

Changing any one data point of the original ({plain(certificate.unit_meaning)}) changes the probability of anything in this folder
by at most a factor of e^{up(certificate.epsilon)}, plus {certificate.delta:g}.
`privacy/certificate.md` says whom and what that covers, and what it does not.

## Load

```python
import pandas as pd

table = pd.read_parquet("synthetic.parquet", dtype_backend="pyarrow")  # every type as declared, missing values as <NA>
```

From the CSV, with nothing but what `datapackage.json` says of it:

```python
import json
from pathlib import Path
import pandas as pd

fields = json.loads(Path("datapackage.json").read_text(encoding="utf-8"))["resources"][0]["schema"]["fields"]
dates = [f["name"] for f in fields if f["type"] in ("date", "datetime")]
text = {{f["name"]: "str" for f in fields if f["type"] in ("string", "boolean")}}
table = pd.read_csv("synthetic.csv", dtype=text, parse_dates=dates, keep_default_na=False, na_values=[""])
```

In R, with the package jsonlite:

```r
fields <- jsonlite::fromJSON("datapackage.json", simplifyVector = FALSE)$resources[[1]]$schema$fields
type <- vapply(fields, function(f) f$type, "")
classes <- c(string = "character", boolean = "character", integer = "numeric", number = "numeric", date = "Date", datetime = "character")[type]
table <- read.csv("synthetic.csv", colClasses = unname(classes), na.strings = "", check.names = FALSE, fileEncoding = "UTF-8")
for (i in which(type == "datetime")) table[[i]] <- as.POSIXct(table[[i]], format = "%Y-%m-%dT%H:%M:%S", tz = "UTC")
```

In DuckDB:

```sql
SELECT * FROM 'synthetic.parquet' LIMIT 5;
SUMMARIZE FROM 'synthetic.parquet';
```

The CSV is UTF-8 with a header, commas and LF line ends; an empty field is a missing value. `datapackage.json` (Frictionless Data Package 2)
gives each column's type, bounds and categories.

For loaders of machine learning `croissant.json` describes the same table (`mlcroissant.Dataset("croissant.json").records("rows")`).

## Good for, and not good for

Good for: exploring, writing and testing code, teaching, and a first look at relations that the released model carries.

Not good for:

{NOT_FOR}

## Files

| file | what |
|---|---|
| `synthetic.csv`, `datapackage.json` | the data and its description |
| `synthetic.parquet`, `croissant.json` | the same rows with their types, and the same description for machine learning (Croissant 1.0) |
| `DATACARD.md` | what the data are, how they were made, what they are for |
| `report.html` | all of this as one page of figures, each with what to conclude from it |
| `privacy/certificate.md`, `privacy/certificate.json` | the guarantee, for people and for programs |
| `privacy/effects.svg` | whose data the guarantee covers, drawn as a causal diagram |
| `privacy/profile.json`, `privacy/profile.svg` | delta at every epsilon: the whole trade-off |
{record}| `privacy/ledger.json` | every look that was taken at the original rows, hash-chained |
| `spec.yaml` | the settings of the release |
| `graph.json`, `graph.svg` | the causal graph of the model and where its arrows come from |
| `marginals.json` | the noisy counts that were measured; free to use under the same guarantee |
| `model.safetensors`, `model.json` | the model; `synthdp sample` draws more rows from it, at no further cost |
| `SHA256SUMS` | checksums of all files above |
{statement}
- Check everything offline: `synthdp verify .`{key}
- Licence: {licence}
- Cite these data as: {plain(citation(spec, certificate, day=day))}
"""  # noqa: E501


def graph_title(spec: ReleaseSpec) -> str:
    """Title of `graph.svg`."""
    return f"Causal graph of {spec.dataset.title or spec.dataset.id}"


def tables_json(tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """Noisy tables as JSON: counts flattened in C order, whole numbers where they are whole."""

    def flat(table: NoisyTable) -> list[int | float]:
        return [
            int(v) if float(v).is_integer() else float(v) for v in np.asarray(table.counts).ravel()
        ]

    return {
        "tables": [
            {
                "columns": list(t.columns),
                "shape": list(t.counts.shape),
                "sigma": t.sigma,
                "counts": flat(t),
            }
            for t in tables
        ]
    }
