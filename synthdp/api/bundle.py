"""A public bundle from Python: check it, load its table, draw from its model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from synthdp.errors import OutputError, SynthdpError, VerifyError

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

    from synthdp.bundle.certificate import Certificate
    from synthdp.bundle.linked import LinkedBundle
    from synthdp.inference.answer import Answer
    from synthdp.inference.effect import EffectAnswer
    from synthdp.inference.estimands import EstimandResult
    from synthdp.ledger.entries import Choice, Decision
    from synthdp.ledger.ledger import Ledger
    from synthdp.report.public.content import PairOfColumns, PublicContent
    from synthdp.spec.model import ReleaseSpec
    from synthdp.verify.checks import VerifyReport


T = TypeVar("T")
SPEC, CERTIFICATE, GRAPH = "spec.yaml", "privacy/certificate.json", "graph.json"
TABLE, MARGINALS, PROFILE = "synthetic.csv", "marginals.json", "privacy/profile.json"


def book_of_run(bundle: Path, ledger: str | None) -> Ledger:
    """The ledger of a bundle's run: `ledger`, or that of the release's spec, or one that is here.

    Raises:
        BudgetError: none of them is at hand, or has the run's entries.
        VerifyError: it was tampered with, or the bundle's entries cannot be read.
    """
    from synthdp.tracking.mlflow_run import ledger_of
    from synthdp.verify.at_hand import book_of

    return book_of(bundle, ledger, None if ledger else ledger_of(bundle.parent))


class Bundle:
    """The public folder of a release: synthetic rows, released values and the certificate.

    Each file is compared with the bundle's list of sums when it is read, which finds damage. A
    forger writes sums that fit: `verify` a bundle of others before anything else.

    Attributes:
        path: the folder, whatever the working folder becomes.

    >>> import synthdp
    >>> synthdp.Bundle("releases/clinic/bundle")
    Bundle('releases/clinic/bundle': dataset 'clinic', epsilon 1, 200 rows)
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
        from synthdp.bundle.certificate import Certificate

        if (linked := self._linked) is not None:
            return linked.certificate
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
        from synthdp.bundle.table_files import typed_frame

        columns = self.spec.columns
        return self._read((TABLE,), lambda: typed_frame(self.path / TABLE, columns))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Both tables of persons with visits by name, persons first, typed as in `table`.

        Their first columns are the keys, from 1: a visit's is that of its person.

        Raises:
            VerifyError: a file was changed, or the bundle is of one table.

        >>> import synthdp
        >>> synthdp.Bundle("releases/clinic/bundle").tables()
        Traceback (most recent call last):
        synthdp.errors.VerifyError: ...releases/clinic/bundle is a bundle of one table
          hint: use `table`
        """
        if (linked := self._linked) is None:
            raise VerifyError(f"{self.path} is a bundle of one table", hint="use `table`")
        return self._read((SPEC,), lambda: linked.typed)

    def sample(
        self,
        n: int | None = None,
        *,
        num_rows: int | None = None,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | str | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """`n` new rows from the bundle's model, typed as in `table`. It costs no privacy.

        Args:
            n: how many rows, at least 1; SDV's name for it, `num_rows`, will do, too.
            do: columns that are set, with their values: the law under this intervention, which is
                the model's own and is not calibrated to the noisy tables.
            given: columns that were observed, with their values, or a condition as a spec's
                constraints have them: the law of rows that are so.
            seed: for samples that can be repeated.

        Values are as in the table; None stands for missing.

        Raises:
            SpecError: a column or a value is outside the domain, or the condition cannot be read.
            OutputError: next to no row has what is given, or `n` is below 1 or not given, or `do`
                rests on arrows that only predict.
            VerifyError: a file was changed.

        >>> import synthdp
        >>> bundle = synthdp.Bundle("releases/clinic/bundle")
        >>> rows = bundle.sample(50, given={"sex": "female"}, do={"age": 40}, seed=1)
        >>> len(rows), set(rows["sex"]), set(rows["age"])
        (50, {'female'}, {40})
        >>> bool((bundle.sample(50, given="age >= 40 and not smoker")["age"] >= 40).all())
        True
        """
        from synthdp.bundle.table_files import typed_rows
        from synthdp.sample.sampler import Sampler, generator

        asked = [rows for rows in (n, num_rows) if rows is not None]
        if len(asked) != 1:
            raise OutputError("give one of n and num_rows", hint="as in `bundle.sample(1000)`")
        if asked[0] < 1:
            raise OutputError(f"{asked[0]} rows cannot be drawn", hint="ask for one row or more")
        sampler, columns = Sampler.of_bundle(self.path), self.spec.columns
        settings = self._settings(do or {})
        if warning := sampler.warning(settings):
            warnings.warn(warning, stacklevel=2)
        blocks = sampler.sample(
            asked[0],
            do=settings,
            given=[given] if isinstance(given, str) else self._settings(given or {}),
            rng=generator(seed),
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
        import pandas as pd

        from synthdp.bundle.noisy_values import read_tables
        from synthdp.data.domain import Domain
        from synthdp.data.level_groups import LevelGroups

        domain, found = Domain.from_spec(self.spec.columns), dict[tuple[str, ...], Any]()
        for table in self._read((MARGINALS,), lambda: read_tables(self.path)):
            columns, coarse = table.columns, LevelGroups(domain, table.starts).coarse
            labels = [coarse[name].labels for name in columns]
            index: pd.Index[Any] = pd.Index(labels[0], name=columns[0])
            if len(columns) > 1:
                index = pd.MultiIndex.from_product(labels, names=columns)
            found[columns] = pd.Series(table.counts.ravel(), index=index, name="noisy count")
            found[columns].attrs["sigma"] = table.sigma
        return found

    def copies(
        self,
        m: int = 20,
        *,
        columns: Sequence[str] | None = None,
        rows: int | None = None,
        seed: int | None = None,
    ) -> CopiedTables:
        """Tables whose pooled analyses have right 95% intervals for what the noisy tables span.

        Args:
            m: how many, at least 2.
            columns: those of an analysis; all, if they are few. Of linked tables they are named as
                questions name them, and of rows of one kind, which have no keys.
            rows: of each; five times as many as were counted, unless told otherwise.
            seed: for copies that can be repeated.

        The result has `tables`, typed as in `table`, `pool`, which runs an analysis on each and
        combines the results, and `spanned`, the content of `spanned.json`: for which analyses the
        intervals are right. It costs no privacy.

        Raises:
            OutputError: the columns are too many for these tables, or no table has two of them.
            VerifyError: a file was changed, or the tables do not agree.

        >>> import synthdp
        >>> copies = synthdp.Bundle("releases/clinic/bundle").copies(3, columns=["smoker"], rows=50)
        >>> [len(table) for table in copies.tables], copies.spanned["sets"][0]["columns"]
        ([50, 50, 50], ['smoker'])
        """
        from synthdp.bundle.table_files import typed_rows
        from synthdp.inference.copies import copies_of

        found = copies_of(self.path, m, columns=columns, rows=rows, seed=seed)
        tables = [typed_rows(iter([table]), found.columns) for table in found]
        return CopiedTables(tables, found.spanned)

    def pair(self, first: str, second: str) -> PairOfColumns:
        """Two columns: shares of their noisy table beside those of the synthetic rows. Of linked
        tables they are named as in arrows of a graph: "visits[-1].stage", "visits.stage".

        It has `synthetic`, `noisy` (None where no table has both), `margin` (half of the 95%
        interval of each of `noisy`, by noise alone) and `about`; `to_svg()` draws it.

        Raises:
            OutputError: there are no such two columns.
            VerifyError: a file was changed.

        >>> import synthdp
        >>> pair = synthdp.Bundle("releases/clinic/bundle").pair("age", "smoker")
        >>> pair.noisy is None, pair.synthetic.shape[1]
        (True, 3)
        """
        from synthdp.report.public.content import PairOfColumns

        if (linked := self._linked) is not None:
            return linked.pair(first, second)
        return PairOfColumns.of(self._public, first, second)

    def answer(self, query: str) -> Answer:
        """A number with a 95% interval, from the noisy tables. It costs no privacy.

        Args:
            query: `share(CONDITION)`, `count(CONDITION)`, `mean(COLUMN)`, `sum(COLUMN)`,
                `quantile(COLUMN, P)` or `correlation(COLUMN, COLUMN)`, then perhaps `where
                CONDITION`, then perhaps `by COLUMN, COLUMN`.

        The answer has `tier` (A measured, B spanned, C model only: no interval), `figures` (one for
        each group of `by`), `about` (what they are of, in words) and `unit`. `estimate` and
        `interval` are of an answer without `by`; `to_frame()` and `to_csv()` have a row for each.

        Raises:
            QueryError: the question cannot be read.
            OutputError: it has too many cells or groups.
            VerifyError: a file was changed, or the tables do not agree.

        >>> import synthdp
        >>> answer = synthdp.Bundle("releases/clinic/bundle").answer("share(smoker) by sex")
        >>> answer.tier, [figure.group for figure in answer.figures]
        ('C', ['female', 'male'])
        """
        from synthdp.inference.answer import answer_bundle

        return answer_bundle(self.path, query)

    def effect(
        self,
        treatment: str,
        outcome: str,
        adjust: Sequence[str] | None = None,
        *,
        reference: str | None = None,
        level: str | None = None,
    ) -> EffectAnswer:
        """The effect of one column on another, by graph and noisy tables. It costs no privacy.

        It is on the mean of a number, or on the share of a category's `level`. None of `adjust`
        leaves to the graph what is adjusted for; `reference` is the treatment's first level.

        Raises:
            OutputError: the graph does not identify the effect, or a name is unknown.
            VerifyError: a file was changed, or the tables do not agree.

        >>> import synthdp
        >>> effect = synthdp.Bundle("releases/clinic/bundle").effect("sex", "smoker")
        >>> effect.tier, [figure.group for figure in effect.figures], effect.adjusted
        ('C', ['male against female'], ((),))
        """
        from synthdp.inference.effect import effect_of_bundle
        from synthdp.inference.effect_query import EffectQuery

        names = None if adjust is None else tuple(adjust)
        return effect_of_bundle(self.path, EffectQuery(treatment, outcome, names, reference, level))

    @property
    def estimands(self) -> tuple[EstimandResult | Answer | EffectAnswer, ...]:
        """What the release was asked and paid for, with 95% intervals, in the order of the spec.

        Raises:
            VerifyError: a file was changed, or cannot be read.

        >>> import synthdp
        >>> synthdp.Bundle("releases/clinic/bundle").estimands
        ()
        """
        from synthdp.inference.answer import questions_of

        return questions_of(self.path).paid

    @property
    def scores(self) -> pd.DataFrame:
        """What the release paid to know of its own quality, a row for each score, with the ends
        `low` and `high` of its 95% interval; empty where the spec asks for none. Of linked tables
        noisy tables tell, and `value` is the distance to these.

        >>> import synthdp
        >>> synthdp.Bundle("releases/clinic/bundle").scores.empty
        True
        """
        import pandas as pd

        names = ["name", "target", "value", "low", "high"]
        if (linked := self._linked) is not None:
            own = [[s.name, None, s.value, s.low, s.high] for s in linked.scores]
            return pd.DataFrame(own, columns=names)
        found = [[getattr(score, name) for name in names] for score in self.certificate.scores]
        return pd.DataFrame(found, columns=names)

    def decide(self, answer: Choice, *, by: str, why: str, ledger: str | None = None) -> Decision:
        """Record in the ledger whether this bundle may be published. It spends nothing.

        The last decision holds, and stays in the ledger beside those before it. A release that was
        tracked gets it as tags in MLflow.

        Args:
            answer: "yes"; "no"; "withdrawn": it was published and is taken back.
            by: who decides; why: the reasons, in one line.
            ledger: a path or a URL; else that of the release's spec, or `.synthdp/ledger.db` here.

        Raises:
            VerifyError: a yes to a bundle that crosses a red line, or the ledger was tampered with.
            BudgetError: the ledger of the bundle's run is not at hand.
            OutputError: a text is blank or too long, or the answer is no such word.

        >>> import synthdp
        >>> bundle = synthdp.Bundle("releases/clinic/bundle")
        >>> print(bundle.decide("no", by="A. Reviewer", why="bounds came from the rows"))
        no, by A. Reviewer on 2...: bounds came from the rows
        """
        from synthdp.ledger.connect import budget_noted
        from synthdp.ledger.entries import decision_of
        from synthdp.release.gates import check_red_lines, red_lines
        from synthdp.tracking.mlflow_run import log_tags
        from synthdp.verify.at_hand import digest_of, published_entries

        with budget_noted():
            book, own = book_of_run(self.path, ledger), published_entries(self.path)[0]
            if answer == "yes":
                check_red_lines(red_lines(self.path, book.entries()))
            digest = digest_of(self.path)
            written = book.decide(
                own.dataset, own.run, bundle_sha256=digest, answer=answer, by=by, why=why
            )
            found = decision_of([written], own.run)
            assert found is not None  # it was just written
        tags = {"decision": answer, "decision_by": by, "decision_why": why}
        return replace(found, warnings=tuple(log_tags(self.path.parent, own.run, tags)))

    def decision(self, *, ledger: str | None = None) -> Decision | None:
        """The decision that holds; None where nobody has decided. `ledger` is as in `decide`.

        Raises:
            BudgetError: the ledger of the bundle's run is not at hand.
            VerifyError: it was tampered with, or the bundle's entries cannot be read.

        >>> import synthdp
        >>> bundle = synthdp.Bundle("releases/clinic/bundle")
        >>> _ = bundle.decide("withdrawn", by="A. Reviewer", why="the table was another one")
        >>> bundle.decision().answer
        'withdrawn'
        """
        from synthdp.ledger.entries import decision_of
        from synthdp.verify.at_hand import published_entries

        run = published_entries(self.path)[0].run
        return decision_of(book_of_run(self.path, ledger).run_entries(run), run)

    def _settings(self, values: Mapping[str, object]) -> list[str]:
        """Values of columns as the command line writes them."""
        from synthdp.data.domain import MISSING_LABEL

        def text(name: str, value: object) -> str:
            column = self.spec.columns.get(name)
            if value is None:
                return MISSING_LABEL
            if isinstance(value, date):
                return value.isoformat()
            if column is not None and column.truth and value in (True, False):
                return column.labels[bool(value)]
            return str(value)

        return [f"{name}={text(name, value)}" for name, value in values.items()]

    def _json(self, name: str) -> Any:
        from synthdp.files import parse_json, read_text

        return parse_json(read_text(self.path / name))

    def _read(self, names: tuple[str, ...], read: Callable[[], T]) -> T:
        """What `read` gives of files whose sums hold.

        Raises:
            VerifyError: a file was changed, or is not what it should be.
        """
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

    @property
    def _linked(self) -> LinkedBundle | None:
        """What a bundle of linked tables states, its tables among it; None of one table."""
        from synthdp.bundle.content import is_linked
        from synthdp.bundle.linked import checked_linked, table_files
        from synthdp.files import check_sums

        if not is_linked(self.path):
            return None
        bundle = checked_linked(self.path, (MARGINALS, GRAPH, PROFILE))
        check_sums(self.path, [csv for csv, _ in table_files(bundle.linked).values()])
        return bundle

    @property
    def _public(self) -> PublicContent:
        """What its public report shows."""
        from synthdp.bundle.content import Bundle as Stated
        from synthdp.bundle.write import public_content
        from synthdp.spec.load.loader import load_spec

        load_spec(self.path / SPEC)  # one of linked tables is refused before files are missed
        names = (SPEC, CERTIFICATE, PROFILE, GRAPH, MARGINALS, TABLE)
        return self._read(names, lambda: public_content(Stated.stated(self.path)))

    def _repr_html_(self) -> str:
        from synthdp.api.text import cards_html
        from synthdp.report.public.page import public_cards, public_uses
        from synthdp.report.public.sections import Measured
        from synthdp.report.sections import ReportTable

        if (linked := self._linked) is not None:
            from synthdp.bundle.linked_files import visit_content
            from synthdp.report.public.visits import visit_cards, visit_uses

            visits = visit_content(linked)
            head = visits.facts["title"] or visits.facts["dataset"]
            both = [*visit_uses(visits), *visit_cards(visits)]
            return cards_html(head, both, tables=[], svg=visits.graph, notes=visits.gates)
        content = self._public
        facts = content.facts
        found = Measured.of(content)
        purposes = ReportTable(
            "Planned purposes, each with its epsilon alone",
            ("purpose", "epsilon alone", "used"),
            tuple(
                (p["purpose"], f"{p['epsilon']:.3f}", "yes" if p["used"] else "no")
                for p in facts["purposes"]
            ),
        )
        cards = [*public_uses(content, found), *public_cards(content, found)]
        title, svg = facts["title"] or facts["dataset"], content.graph.svg
        return cards_html(title, cards, tables=[purposes], svg=svg, notes=content.notes)

    def __repr__(self) -> str:
        here = Path.cwd()
        shown = self.path.relative_to(here) if self.path.is_relative_to(here) else self.path
        try:
            linked = self._linked
            spec = self.spec if linked is None else linked.spec
            told = f": dataset {spec.dataset.id!r}, epsilon {spec.privacy.epsilon:g}"
            told += f", {spec.sampling.rows:,} {'rows' if linked is None else 'persons'}"
        except SynthdpError:  # no bundle, or a damaged one
            told = ""
        return f"Bundle({shown.as_posix()!r}{told})"


class CopiedTables(NamedTuple):
    """Copies of a bundle's columns, and what analyses of them are right for.

    >>> import synthdp
    >>> copies = synthdp.Bundle("releases/clinic/bundle").copies(2, columns=["smoker"], rows=50)
    >>> len(copies.tables)
    2
    """

    tables: list[pd.DataFrame]
    spanned: dict[str, Any]

    def pool(self, model: Callable[[pd.DataFrame], Any]) -> pd.DataFrame:
        """Estimates of a model with 95% intervals, pooled over the copies.

        Args:
            model: fits one table. It gives a result with `params` and `bse`, as statsmodels does,
                or a mapping of names to an estimate and its variance, both as for independent rows;
                take robust ones where the model may be wrong.

        A line for each estimate has `estimate`, `error` (standard error), `low`, `high` and
        `freedom`, the degrees of freedom. They are right for what `spanned` names, and wrong in
        silence for all else.

        Raises:
            OutputError: a fit has no estimates with their errors, or other ones than the first.

        >>> import synthdp
        >>> copies = synthdp.Bundle("releases/clinic/bundle").copies(5, columns=["smoker"], seed=1)
        >>> def smokers(table):
        ...     known = table["smoker"].dropna().astype(float)
        ...     return {"smokers": (known.mean(), known.var() / len(known))}
        >>> found = copies.pool(smokers).loc["smokers"]
        >>> bool(0 <= found["low"] < found["estimate"] < found["high"] <= 1)
        True
        """
        from synthdp.inference.copies import pool_fits

        return pool_fits(self.tables, model)
