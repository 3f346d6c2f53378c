"""A public bundle from Python: check it, load its table, draw from its model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from synthdp.api.answers import Answers
from synthdp.api.cards import cards_html

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

    from synthdp.bundle.certificate.facts import Certificate
    from synthdp.spec.model import ReleaseSpec
    from synthdp.verify.checks import VerifyReport

T = TypeVar("T")
SPEC, CERTIFICATE, GRAPH = "spec.yaml", "privacy/certificate.json", "graph.json"
TABLE, MARGINALS, PROFILE = "synthetic.csv", "marginals.json", "privacy/profile.json"


class Bundle(Answers):
    """The public folder of a release: synthetic rows, released values and the certificate.

    Each file is compared with the bundle's list of sums when it is read, which finds damage. A
    forger writes sums that fit: `verify` a bundle of others before anything else.

    Attributes:
        path: the folder, whatever the working folder becomes.

    >>> import synthdp
    >>> synthdp.Bundle("releases/clinic/bundle")
    Bundle('releases/clinic/bundle')
    """

    path: Path

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    def verify(self, *, key: str | Path | None = None) -> VerifyReport:
        """Check offline that the bundle agrees with itself.

        Args:
            key: the file of the publisher's public key; only what it signed is accepted.

        Raises:
            VerifyError: with every problem found.

        >>> import synthdp
        >>> report = synthdp.Bundle("releases/clinic/bundle").verify()
        >>> report.ok, report.delta
        (True, 1e-05)
        """
        from synthdp.verify.checks import verify_bundle

        return verify_bundle(self.path, key=None if key is None else Path(key))

    @property
    def spec(self) -> ReleaseSpec:
        """The published spec: columns with their types, bounds and units, and the budget.

        >>> import synthdp
        >>> list(synthdp.Bundle("releases/clinic/bundle").spec.columns)
        ['age', 'sex', 'smoker']
        """
        from synthdp.spec.load.loader import load_spec

        return self._read((SPEC,), lambda: load_spec(self.path / SPEC))

    @property
    def certificate(self) -> Certificate:
        """The facts of the privacy certificate; its numbers are upper bounds.

        >>> import synthdp
        >>> synthdp.Bundle("releases/clinic/bundle").certificate.unit_meaning
        'one patient'
        """
        from synthdp.bundle.certificate.facts import Certificate

        return self._read(
            (CERTIFICATE,), lambda: Certificate.model_validate(self._json(CERTIFICATE))
        )

    def table(self) -> pd.DataFrame:
        """The synthetic rows, with the types that the spec declares.

        Categories are categorical (ordered for ordinals). Whole numbers and booleans that may be
        missing are `Int64` and `boolean`. Days and times are `datetime64`.

        >>> import synthdp
        >>> synthdp.Bundle("releases/clinic/bundle").table().dtypes.astype(str).to_dict()
        {'age': 'int64', 'sex': 'category', 'smoker': 'boolean'}
        """
        from synthdp.bundle.metadata.parquet import typed_frame

        columns = self.spec.columns
        frame: pd.DataFrame = self._read((TABLE,), lambda: typed_frame(self.path / TABLE, columns))
        return frame

    def sample(
        self,
        n: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | str | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """`n` new rows from the bundle's model, typed as in `table`. It costs no privacy.

        Args:
            n: how many rows, at least 1.
            do: columns that are set, with their values: the law under this intervention, which is
                the model's own and is not calibrated to the noisy tables.
            given: columns that were observed, with their values, or a condition as a spec's
                constraints have them: the law of rows that are so.
            seed: for samples that can be repeated.

        Values are as in the table; None stands for missing.

        Raises:
            SpecError: a column or a value is outside the domain, or the condition cannot be read.
            OutputError: next to no row has what is given, or `n` is below 1, or `do` rests on
                arrows that only predict.
            VerifyError: a file was changed.

        >>> import synthdp
        >>> bundle = synthdp.Bundle("releases/clinic/bundle")
        >>> rows = bundle.sample(50, given={"sex": "female"}, do={"age": 40}, seed=1)
        >>> len(rows), set(rows["sex"]), set(rows["age"])
        (50, {'female'}, {40})
        >>> bool((bundle.sample(50, given="age >= 40 and not smoker")["age"] >= 40).all())
        True
        """
        from synthdp.errors import OutputError
        from synthdp.progress import unheard
        from synthdp.sample.files import typed_rows
        from synthdp.sample.sampler import Sampler, generator

        if n < 1:
            raise OutputError(f"{n} rows cannot be drawn", hint="ask for one row or more")
        sampler, columns = Sampler.of_bundle(self.path), self.spec.columns
        settings = self._settings(do or {})
        if warning := sampler.warning(settings):
            warnings.warn(warning, stacklevel=2)
        blocks = sampler.sample(
            n,
            do=settings,
            given=[given] if isinstance(given, str) else self._settings(given or {}),
            rng=generator(seed),
            progress=unheard,
        )
        return typed_rows(blocks, columns)

    @property
    def graph(self) -> nx.DiGraph:
        """The causal graph: arrows from cause to effect, with their `provenance`.

        Arrows of provenance `predictive` say which columns predict which; they are no causes.

        An arrow whose attribute `directed` is False stands for a link of unknown direction; it is
        turned so that the graph has no cycle.

        >>> import synthdp
        >>> graph = synthdp.Bundle("releases/clinic/bundle").graph
        >>> list(graph.edges), graph.edges["sex", "smoker"]["provenance"]
        ([('age', 'smoker'), ('sex', 'smoker')], 'given')
        """
        from synthdp.graph.causal import CausalGraph

        graph = self._read((GRAPH,), lambda: CausalGraph.from_json(self._json(GRAPH)))
        links = {frozenset(e.pair): e for e in graph.edges if e.structural}
        drawn = graph.dag.copy()
        for cause, effect, facts in drawn.edges(data=True):
            link = links[frozenset((cause, effect))]
            facts |= {"directed": link.directed, "provenance": link.provenance}
        return drawn

    @property
    def marginals(self) -> dict[tuple[str, ...], pd.Series[float]]:
        """The noisy tables by their columns: a count for each level, or combination of levels.

        Mode predict counts pairs of fine columns on groups of their levels.

        A count is the number of real rows plus noise, and may be negative. The noise's standard
        deviation, in rows, is `attrs["sigma"]`.

        >>> import synthdp
        >>> ages = synthdp.Bundle("releases/clinic/bundle").marginals["sex",]
        >>> ages.index.tolist(), ages.attrs["sigma"] > 0
        (['female', 'male'], True)
        """
        from synthdp.api.noisy_series import noisy_series
        from synthdp.bundle.noisy_tables import read_tables
        from synthdp.data.domain import Domain

        domain = Domain.from_spec(self.spec.columns)
        return self._read(
            (MARGINALS,),
            lambda: {t.columns: noisy_series(t, domain) for t in read_tables(self.path)},
        )

    def _settings(self, values: Mapping[str, object]) -> list[str]:
        """Values of columns as the command line writes them."""
        return [f"{name}={self._text(name, value)}" for name, value in values.items()]

    def _text(self, name: str, value: object) -> str:
        from synthdp.data.domain import MISSING_LABEL

        column = self.spec.columns.get(name)
        if value is None:
            return MISSING_LABEL
        if isinstance(value, date):
            return value.isoformat()
        if column is not None and column.truth and value in (True, False):
            return column.labels[bool(value)]
        return str(value)

    def _json(self, name: str) -> Any:
        from synthdp.files import parse_json, read_text

        return parse_json(read_text(self.path / name))

    def _read(self, names: tuple[str, ...], read: Callable[[], T]) -> T:
        """What `read` gives of files whose sums hold.

        Raises:
            VerifyError: a file was changed, or is not what it should be.
        """
        from synthdp.errors import VerifyError
        from synthdp.files import check_sums

        check_sums(self.path, names)
        try:
            return read()
        except (OSError, ValueError, KeyError, TypeError) as error:
            kind = type(error).__name__
        raise VerifyError(
            f"cannot read {names[0]} in {self.path}: {kind}",
            hint=f"see `synthdp verify {self.path}`",
        )

    def _repr_html_(self) -> str:
        from synthdp.bundle.report_page import public_content
        from synthdp.report.measured_vs_synthetic import columns
        from synthdp.report.public.cards import public_cards
        from synthdp.report.public.uses import public_uses
        from synthdp.report.tables import ReportTable

        names = (SPEC, CERTIFICATE, PROFILE, GRAPH, MARGINALS, TABLE)
        content = self._read(names, lambda: public_content(self.path))
        facts = content.facts
        shown = list(columns(content.domain, content.codes, content.tables))
        purposes = ReportTable(
            "Planned purposes, each with its epsilon alone",
            ("purpose", "epsilon alone", "used"),
            tuple(
                (p["purpose"], f"{p['epsilon']:.3f}", "yes" if p["used"] else "no")
                for p in facts["purposes"]
            ),
        )
        return cards_html(
            facts["title"] or facts["dataset"],
            [*public_uses(content, shown), *public_cards(content, shown)],
            tables=[purposes],
            svg=content.graph.svg,
            notes=content.notes,
        )

    def __repr__(self) -> str:
        here = Path.cwd()
        shown = self.path.relative_to(here) if self.path.is_relative_to(here) else self.path
        return f"Bundle({shown.as_posix()!r})"
