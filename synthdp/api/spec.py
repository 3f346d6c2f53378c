"""A release's spec from Python: load it, see its plan, run it."""

from __future__ import annotations

import html
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from synthdp.api.bundle import Bundle
from synthdp.errors import DataError, OutputError, SpecError, SpecProblem, extra_named
from synthdp.progress import stage

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.api.checked import Checked
    from synthdp.bundle.audit_record import AuditRecord
    from synthdp.ledger.entries import Balance
    from synthdp.release.job import ReleaseOutcome
    from synthdp.release.linked import LinkedOutcome
    from synthdp.spec.model import Column, LinkedSpec, ReleaseSpec

    Rows: TypeAlias = pd.DataFrame | Mapping[str, pd.DataFrame]

NO_FILE = "spec-from-python.yaml"  # what mistakes call a spec that stands in no file
# The working folder when this module was loaded: a notebook's `%cd` between two releases must not
# begin a second ledger.
BEGUN_IN = Path.cwd()


class Spec:
    """A checked spec. Its mistakes, all at once, are one `SpecError`.

    Attributes:
        text: the spec as YAML; lines and columns of mistakes are those of this text.
        path: its file, whatever the working folder becomes. Relative paths in the spec, the
            default ledger among them, start from the file's folder.
        linked: all its fields with their defaults where it is of linked tables, else None.

    >>> import synthdp
    >>> synthdp.Spec.load("clinic.yaml")
    Spec('clinic.yaml': dataset 'clinic', 3 columns, epsilon 1, graph given)
    """

    text: str
    path: Path
    linked: LinkedSpec | None

    def __init__(self, text: str, *, path: str | Path) -> None:
        from synthdp.spec.load.loader import parse_any
        from synthdp.spec.model import LinkedSpec

        self.text, self.path = text, Path(path).resolve()
        spec = parse_any(text, path=str(path))
        self.linked = spec if isinstance(spec, LinkedSpec) else None
        self._one = None if isinstance(spec, LinkedSpec) else spec

    @property
    def content(self) -> ReleaseSpec:
        """All its fields with their defaults.

        Raises:
            SpecError: it is of linked tables, and this is asked for by what is of one table.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").content.privacy.delta
        1e-05
        """
        from synthdp.spec.load.loader import parse_spec

        return self._one or parse_spec(self.text, path=self.path.name)

    @classmethod
    def load(cls, path: str | Path) -> Spec:
        """The spec in a YAML file.

        Raises:
            SpecError: the file cannot be read, or has mistakes.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").columns["age"].upper
        110
        """
        from synthdp.spec.load.loader import own_text

        return cls(own_text(Path(path)), path=path)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, folder: str | Path = BEGUN_IN) -> Spec:
        """A spec from plain Python values, with the keys of the YAML file.

        `folder` takes the place of the file's folder: relative paths start from it, and the
        default ledger lies in it. Give every release of a dataset the same one. The default is the
        folder in which Python first asked for `synthdp.Spec`, whatever the working folder is now.

        Raises:
            SpecError: it has mistakes, or values that YAML does not have.
            OutputError: there is no such folder.

        >>> import synthdp
        >>> spec = synthdp.Spec.from_dict({
        ...     "synthdp": 1,
        ...     "dataset": {
        ...         "id": "visits",
        ...         "source": {"kind": "dataframe"},
        ...         "privacy_unit": {"kind": "row", "meaning": "one patient"},
        ...         "rows": {"kind": "approximate", "value": 5000},
        ...     },
        ...     "columns": {"ill": {"type": "categorical", "categories": ["no", "yes"]}},
        ...     "privacy": {"epsilon": 1, "delta": 1e-6},
        ... })
        >>> spec.content.dataset.source.kind
        'dataframe'
        """
        import yaml

        from synthdp.spec.edit import PLAIN_VALUES
        from synthdp.spec.load.loader import with_lists
        from synthdp.spec.writing import yaml_text

        if not Path(folder).is_dir():
            hint = "give the folder that has, or is to have, the dataset's ledger"
            raise OutputError(f"there is no folder {folder}", hint=hint)
        try:
            text = yaml_text(content)
        except (yaml.YAMLError, RecursionError) as error:
            what = type(error.args[1]).__name__ if len(error.args) > 1 else type(error).__name__
            message = f"holds a value that YAML does not have ({what})"
            raise SpecError([SpecProblem("spec", 1, 1, "spec", message, PLAIN_VALUES)]) from None
        path = Path(folder) / NO_FILE
        return cls(with_lists(text, path=NO_FILE, folder=Path(folder)), path=path)

    @staticmethod
    def check(text: str | None = None, *, path: str | Path = NO_FILE) -> Checked:
        """All that a text shows at once, as that of the file at `path`; of the file itself where
        there is no text. Nothing is raised, no row is read.

        >>> import synthdp
        >>> checked = synthdp.Spec.check(path="clinic.yaml")
        >>> checked.spec, checked.mistakes
        (Spec('clinic.yaml': dataset 'clinic', 3 columns, epsilon 1, graph given), ())
        >>> text = checked.spec.text.replace("upper: 110", "upper: 1")
        >>> [p.loc for p in synthdp.Spec.check(text, path="clinic.yaml").mistakes]
        [('columns', 'age', 'lower')]
        """
        from synthdp.api.checked import check

        return check(text, Path(path))

    @staticmethod
    def draft(dtypes: Mapping[str, Any], *, rows: int | None = None) -> str:
        """A draft, as YAML, of names and dtypes, as `synthdp init` writes it of a file's header.

        Give `df.dtypes`: a draft is of nothing in the rows, and none is seen here. `rows` is their
        number, as a constant that may be published. Of linked tables give a dict of two such by
        name, that with a row for each person first; `rows` is then the number of persons.

        Raises:
            DataError: these are no dtypes, or there are no readable, distinct names.

        >>> import synthdp
        >>> text = synthdp.Spec.draft({"age": "int64", "sex": "category"}, rows=5000)
        >>> print(text[text.index("age:") :])
        age:
            type: integer
            lower: !fill_in "the least value allowed: public knowledge, not the least in the table"
        ...
        """
        from synthdp.spec.draft import draft_spec
        from synthdp.spec.draft_linked import draft_linked

        if (
            isinstance(dtypes, dict)
            and dtypes
            and all(hasattr(v, "items") for v in dtypes.values())
        ):
            return draft_linked(dtypes, ask=None, rows=rows)
        return draft_spec(dtypes, ask=None, rows=rows)

    def replace(self, **changes: Any) -> Spec:
        """The same spec with other values of some keys; what it leaves out is filled in anew.

        A key goes by its path, as in `replace(**{"sampling.rows": 500})`; its own name will do
        where it is a section, or one section alone has it.

        Raises:
            SpecError: the new spec has mistakes, or a name is a key of several sections.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").replace(epsilon=2)
        Spec('clinic.yaml': dataset 'clinic', 3 columns, epsilon 2, graph given)
        """
        from synthdp.spec.edit import replaced
        from synthdp.spec.load.loader import with_lists

        text, name = replaced(self.text, changes, path=self.path.name), self.path.name
        return Spec(with_lists(text, path=name, folder=self.path.parent), path=self.path)

    def edited(self, loc: Sequence[str | int], *value: Any) -> Spec:
        """The same spec with a `value` at a path of keys and positions, or without what is there.

        Comments, order and all other lines stay as they are.

        Raises:
            SpecError: the new spec has mistakes, or this cannot be changed without changing more.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").edited(("columns", "age", "upper"), 99).columns["age"]
        Integer(...upper=99...)
        """
        from synthdp.spec.edit import drop, set_value

        name, place = self.path.name, tuple(loc)
        edit = set_value(self.text, place, *value, path=name) if value else None
        return Spec(drop(self.text, place, path=name) if edit is None else edit, path=self.path)

    @property
    def columns(self) -> Mapping[str, Column]:
        """What each column may hold, by its name.

        >>> import synthdp
        >>> list(synthdp.Spec.load("clinic.yaml").columns)
        ['age', 'sex', 'smoker']
        """
        return self.content.columns

    @extra_named()
    def plan(
        self,
        *,
        what_if: Sequence[float] = (),
        rehearse: bool = False,
        half_width: float | None = None,
    ) -> BudgetPlan:
        """Every spend that a release of this spec would make; reads no rows and spends nothing.

        Args:
            what_if: other epsilons, at most 8, of which `BudgetPlan.what_if` tells what each would
                give; about a second each.
            rehearse: run a release on simulated rows, without a ledger, and tell in
                `BudgetPlan.rehearsal` how good its answers and its table are; takes as long as
                training does.
            half_width: tell in `facts["reach"]` with which epsilon, or share of estimands, the 95%
                intervals of estimands are that wide to either side.

        Raises:
            OutputError: an epsilon that no spec may have, or an argument that linked tables do not
                have yet.
            BudgetError: the ledger's cap does not allow the release.
            VerifyError: the ledger was damaged.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().dataset
        'clinic'
        >>> list(synthdp.Spec.load("clinic.yaml").plan(what_if=[0.5, 2]).what_if["epsilon"])
        [0.5, 2.0]
        """
        found, balance = self.planned(what_if, rehearse=rehearse, half_width=half_width)
        check_affordable(self, found, balance)
        return found

    def planned(
        self,
        what_if: Sequence[float] = (),
        *,
        rehearse: bool = False,
        half_width: float | None = None,
    ) -> tuple[BudgetPlan, Balance]:
        """The plan, whether or not the ledger allows it, and what the ledger says.

        >>> import synthdp
        >>> planned, balance = synthdp.Spec.load("clinic.yaml").planned()
        >>> planned.ledger["spent_before"] == balance.together
        True
        """
        from synthdp.release.plan_view import plan_facts
        from synthdp.verify.at_hand import standing

        if self.linked is not None:
            from synthdp.release.linked_plan import planned_linked

            check_plain({"what_if": what_if, "rehearse": rehearse, "half_width": half_width})
            told, balance = planned_linked(self.linked, self.path)
            return BudgetPlan.of_facts(told), balance
        spec = self.content
        balance, others = standing(spec, self.path, Path("releases") / spec.dataset.id)
        facts = plan_facts(spec, balance, warnings=others)
        if what_if:
            from synthdp.release.plan_view import what_if as at_epsilons

            epsilons = list(map(float, what_if))
            with stage("what if"):
                facts |= {"what_if": at_epsilons(self.text, epsilons)}
        if half_width is not None:
            from synthdp.release.plan_view import reaching

            reached = reaching(self.text, spec, half_width)
            facts |= {"reach": {"half_width": half_width, "estimands": reached}}
        if rehearse:
            from synthdp.release.rehearse import rehearse as on_simulated_rows

            with stage("rehearse"):
                facts |= {"rehearsal": on_simulated_rows(spec)}
        return BudgetPlan.of_facts(facts), balance

    @extra_named()
    def inspect(self, df: pd.DataFrame | None = None, *, examples: bool = False) -> pd.DataFrame:
        """What does not fit the spec in its rows: `rows` by `column` and `kind`.

        Outside the guarantee, and for the steward's eyes: do not publish it. It costs no budget.

        Args:
            df: the rows, in place of `dataset.source`.
            examples: add `examples`, the five commonest values of each and their rows.

        Raises:
            DataError: the source cannot be read, or has other columns.
            OutputError: examples were asked for, and `compute.engine` keeps the rows elsewhere.

        >>> import pandas as pd, synthdp
        >>> df = pd.read_csv("clinic.csv", dtype="str")
        >>> synthdp.Spec.load("clinic.yaml").inspect(df).empty
        True
        """
        import pandas as pd

        from synthdp.privacy.readers.files import seal_dataframe
        from synthdp.release.judge import misfits_for_steward

        spec = self if df is None else self.of_dataframe(df)
        given = None if df is None else seal_dataframe(df)
        found = misfits_for_steward(spec.content, spec.path, given=given, examples=examples)
        names = ["column", "kind", "rows", *(["examples"] if examples else [])]
        told = [(m.column, m.kind, m.rows, m.examples)[: len(names)] for m in found]
        return pd.DataFrame(told, columns=names)

    @extra_named()
    def release(
        self,
        df: Rows | None = None,
        *,
        out: str | Path | None = None,
        force: bool = False,
        attack: Literal["now", "later"] | None = None,
        accept_refusals: bool = False,
    ) -> Release:
        """Run the release: measure, train, sample, write the bundle, and judge it.

        A DataFrame takes the place of `dataset.source`, and the published spec says so. It is
        sealed like a file: each value is read by itself, and what the spec does not declare is
        refused. The ledger counts the release under `dataset.id`. The index is not read.

        Args:
            df: the rows, with a column for each column of the spec, and one for the ids of the
                privacy unit. Its dtypes must not follow from the rows (see
                `synthdp.privacy.readers.files`). Of linked tables a DataFrame for each of them, or
                for some, by its name.
            out: the output folder [default: `releases/<dataset id>`]; a relative one starts from
                the working folder as it is now.
            force: replace a bundle that is there, or drop an interrupted run.
            attack: "later" puts the attack off; `synthdp.attack` runs it. Where neither this nor
                the spec says so, an attack that takes longer than the release is left out.
            accept_refusals: pay for estimands also where they are likely to be refused.

        Raises:
            BudgetError: the ledger does not allow it, or an estimand is likely to be refused.
                Nothing was spent.
            DataError: the rows do not fit the spec. A note on the error says what was spent.
            GateError: a gate failed. The budget is spent and there is no bundle.
            OutputError: `out` cannot be used, or the extra `release` is not installed.

        >>> import pandas as pd, synthdp
        >>> df = pd.read_csv("clinic.csv", dtype="str")
        >>> release = synthdp.Spec.load("clinic.yaml").release(df, out="releases/from-python")
        >>> release.bundle.spec.dataset.source.kind
        'dataframe'
        """
        spec = self if df is None else self.of_dataframe(df)
        dataset = (spec.linked or spec.content).dataset.id
        target = Path("releases") / dataset if out is None else Path(out)
        from synthdp.release.linked import release_linked
        from synthdp.release.run import release

        # Both paths are absolute: the working folder may change while the run lasts.
        given = {"text": spec.text, "out": target.absolute(), "force": force, **_sealed(df)}
        if spec.linked is not None:
            check_plain({"attack": attack == "later", "accept_refusals": accept_refusals})
            return Release.of_outcome(release_linked(spec.linked, spec.path, **given))
        given |= {"attack": attack, "accept_refusals": accept_refusals}
        return Release.of_outcome(release(spec.path, **given))

    def of_dataframe(self, df: Rows) -> Spec:
        """The same spec with the rows `df` in place of its source, or by table in place of those of
        linked tables; only their dtypes are seen.

        It warns of declared numbers whose dtypes look inferred.

        Raises:
            DataError: tables are given and the spec is of one, or the other way round, or a table
                is none of the spec's.
        """
        from synthdp.privacy.readers.files import told_inferred
        from synthdp.spec.model import DataFrameSource

        spec = self
        for at, frame, source, columns in self._given(df):
            if not isinstance(source, DataFrameSource):
                source = DataFrameSource(kind="dataframe")
                spec = spec.replace(**{f"{at}.source": {"kind": "dataframe"}})
            if told := told_inferred(frame, columns, source.rename):
                warnings.warn(told, stacklevel=4)
        return spec

    def _given(self, df: Rows) -> Iterator[tuple[str, object, Any, Mapping[str, Column]]]:
        """Each DataFrame with its place in the spec, and the source and columns declared there."""
        _check_tables(df, self.linked)
        if self.linked is None:
            yield "dataset", df, self.content.dataset.source, self.columns
        elif isinstance(df, Mapping):
            for name, frame in df.items():
                source, columns = self.linked.dataset.tables[name].source, self.linked.columns[name]
                yield f"dataset.tables.{name}", frame, source, columns

    def __repr__(self) -> str:
        spec = self.linked or self.content
        columns: Any = spec.columns
        what = f"{len(columns)} columns"
        if self.linked is not None:
            what = f"tables {', '.join(f'{n} ({len(c)} columns)' for n, c in columns.items())}"
        return (
            f"Spec({self.path.name!r}: dataset {spec.dataset.id!r}, {what}, epsilon"
            f" {spec.privacy.epsilon:g}, graph {spec.graph.mode})"
        )


def _check_tables(df: Rows | None, linked: LinkedSpec | None) -> None:
    """Raise `DataError` unless rows are given of one table, or of tables that are linked."""
    tables = [] if linked is None else [*linked.dataset.tables]
    if df is not None and (
        isinstance(df, Mapping) is not bool(tables) or not {*df} <= {*(tables or df)}
    ):
        shape = f"{{{', '.join(f'{name!r}: df' for name in tables)}}}"
        message = f"linked tables, {' and '.join(tables)}" if tables else "one table"
        hint = f"give a dict, {shape}" if tables else "give its DataFrame alone"
        raise DataError(f"the spec is of {message}, and other rows were given", hint=hint)


def check_plain(given: Mapping[str, object]) -> None:
    """Raise `OutputError` where an argument or option is given that is of one table."""
    if of_one := [name for name, value in given.items() if value]:
        message = f"{of_one[0]} is not there yet for a spec of linked tables"
        raise OutputError(message, hint="leave it out")


# --- plan ---


def check_affordable(spec: Spec, plan: BudgetPlan, balance: Balance) -> None:
    """Raise `BudgetError` where the ledger's cap does not allow what was `Spec.planned`."""
    from synthdp.ledger.connect import check_affordable

    if spec.linked is None:
        return check_affordable(spec.content, balance, plan.ledger)
    from synthdp.bundle.linked import as_one

    check_affordable(as_one(spec.linked), balance, plan.ledger)


@dataclass(frozen=True)
class BudgetPlan:
    """Every planned spend, and the ledger before and after; made by `Spec.plan`, without any row.

    `epsilon` is what all spends compose to, and is the release's guarantee at `delta`. The spec
    allows `epsilon_allowed`.

    >>> import synthdp
    >>> plan = synthdp.Spec.load("clinic.yaml").plan()
    >>> plan.epsilon <= plan.epsilon_allowed == 1.0
    True
    >>> list(plan.spends.columns)
    ['purpose', 'mechanism', 'epsilon_alone', 'serves']
    """

    dataset: str
    epsilon: float
    epsilon_allowed: float
    delta: float
    warnings: tuple[str, ...]
    facts: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> BudgetPlan:
        """From the object that `synthdp plan --json` prints."""
        return cls(
            dataset=facts["dataset"],
            epsilon=facts["epsilon_spent"],
            epsilon_allowed=facts["epsilon"],
            delta=facts["delta"],
            warnings=tuple(facts["warnings"]),
            facts=facts,
        )

    @property
    def spends(self) -> pd.DataFrame:
        """One row a spend; `epsilon_alone` is the epsilon of that spend by itself at `delta`. Of
        linked tables it has the most rows of a person that a spend counts.

        Together the spends cost less than the sum, since one accountant composes them.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().spends["purpose"].tolist()
        ['measure', 'train']
        """
        import pandas as pd

        last = "rows_of_a_person" if "at_most" in self.facts else "serves"
        columns = ["purpose", "mechanism", "epsilon_alone", last]
        return pd.DataFrame(self.facts["spends"], columns=columns)

    @property
    def what_if(self) -> pd.DataFrame:
        """One row for each epsilon that `Spec.plan` was asked about; empty if it was not.

        `right_at_most` is the highest probability that someone who knows every other row is right
        about one unit, `tv1` the expected mean total variation of single columns,
        `weakest_correlation` the least that mode predict is likely to see, and `decidable_pairs`
        how many pairs mode learn would decide. All else is in `facts["what_if"]`.

        >>> import synthdp
        >>> asked = synthdp.Spec.load("clinic.yaml").plan(what_if=[0.5, 2]).what_if
        >>> bool(asked["right_at_most"].is_monotonic_increasing)
        True
        """
        import pandas as pd

        columns = ["epsilon", "right_at_most", "tv1", "weakest_correlation", "decidable_pairs"]
        options = self.facts.get("what_if", ())
        rows = [{**option, **option.get("quality", {})} for option in options]
        return pd.DataFrame(rows, columns=columns)

    @property
    def rehearsal(self) -> Mapping[str, Any] | None:
        """A release on simulated rows held against them, if `Spec.plan` was asked to rehearse.

        `tv1` and `tv2` are of the released rows, `answers` of the noisy tables: bias, error and how
        many intervals hold the truth, for means, shares and shares of pairs.

        >>> import synthdp
        >>> rehearsed = synthdp.Spec.load("clinic.yaml").plan(rehearse=True).rehearsal
        >>> [answers["kind"] for answers in rehearsed["answers"]]
        ['means', 'shares', 'pair shares']
        """
        return cast("Mapping[str, Any] | None", self.facts.get("rehearsal"))

    @property
    def ledger(self) -> Mapping[str, Any]:
        """Epsilon of this dataset in the ledger: `spent_before`, `spent_after` and `cap`.

        Also the `rule` by which its runs count together, and what a Gaussian filter counts of this
        one: `mu` and `lost`.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().ledger["cap"]
        9.0
        """
        return cast("Mapping[str, Any]", self.facts["ledger"])

    def to_json(self) -> dict[str, Any]:
        """The object that `synthdp plan --json` prints.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().to_json()["delta"]
        1e-05
        """
        return dict(self.facts)

    def __str__(self) -> str:
        from synthdp.api.text import linked_plan_text, plan_text

        return (linked_plan_text if "at_most" in self.facts else plan_text)(self.facts)

    def _repr_html_(self) -> str:
        from synthdp.api.text import plan_cards

        return plan_cards(self.facts) if "quality" in self.facts else _preformatted(self)


# --- release ---


@dataclass(frozen=True)
class Release:
    """A release whose gates held; made by `Spec.release` and `resume`.

    Attributes:
        run: the run's id in the ledger.
        bundle: what was published.
        report: the steward's report (HTML). It is computed on real rows and is never to be shared.
            None of linked tables, which are not judged on real rows yet.
        epsilon, delta: the guarantee of the bundle.
        gates: each gate's metric and its bound in words, all of which held.
        seconds: wall time of each stage.
        warnings: what the steward should know.

    >>> import synthdp
    >>> release = synthdp.Spec.load("clinic.yaml").release(out="releases/again")
    >>> release.bundle, release.epsilon <= 1, release.gates
    (Bundle('releases/again/bundle'...), True, (('tv1_noisy', 'at most 1'),))
    """

    run: str
    bundle: Bundle
    report: Path | None
    epsilon: float
    delta: float
    gates: tuple[tuple[str, str], ...]
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]
    outcome: ReleaseOutcome | LinkedOutcome = field(repr=False, compare=False)

    @classmethod
    def of_outcome(cls, outcome: ReleaseOutcome | LinkedOutcome) -> Release:
        """From what a run came to.

        Raises:
            GateError: a gate withheld the bundle.
        """
        from synthdp.release.linked import LinkedOutcome

        plan, gates = outcome.job.plan, list[tuple[str, str]]()
        if not isinstance(outcome, LinkedOutcome):
            outcome.check_passed()
            gates = [(v.gate.metric, v.gate.bound) for v in outcome.verdicts]
        assert outcome.bundle is not None  # no gate failed
        return cls(
            run=outcome.job.folder.run,
            bundle=Bundle(outcome.bundle),
            report=outcome.report,
            epsilon=plan.epsilon_spent,
            delta=plan.delta,
            gates=tuple(gates),
            seconds=outcome.seconds,
            warnings=outcome.warnings,
            outcome=outcome,
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `synthdp release --json` prints.

        >>> import synthdp
        >>> made = synthdp.Spec.load("clinic.yaml").release(out="releases/as-json")
        >>> made.to_json()["gates"]
        [{'metric': 'tv1_noisy', 'bound': 'at most 1', 'passed': True}]
        """
        return self.outcome.to_json()

    def __str__(self) -> str:
        return str(self.outcome)

    def _repr_html_(self) -> str:
        from synthdp.api.text import outcome_cards
        from synthdp.release.linked import LinkedOutcome

        done = self.outcome
        return _preformatted(done) if isinstance(done, LinkedOutcome) else outcome_cards(done)


def _preformatted(told: object) -> str:
    """A text for a notebook."""
    return f"<pre>{html.escape(str(told))}</pre>"


@extra_named()
def resume(
    out: str | Path,
    df: Rows | None = None,
    *,
    spec: str | Path | None = None,
    attack: Literal["now", "never"] = "now",
) -> Release:
    """Continue the interrupted release in the folder `out`, without paying again.

    Args:
        out: the output folder of the run.
        df: the rows again, where the run began with a DataFrame, or with one by table: the same
            ones in the same order. Nothing of them was kept, so that nobody can check it.
        spec: a file with a spec to go on by. It may differ in constraints, sampling and what else
            is done with released values.
        attack: "never" to finish without the declared attack.

    Raises:
        OutputError: there is no interrupted release in `out`.
        SpecError: the new spec changes what the run was paid for.
        DataError: the run needs a DataFrame, or needs none.
        BudgetError, GateError: as for a new release.

    >>> import synthdp
    >>> synthdp.resume("releases/clinic")
    Traceback (most recent call last):
    synthdp.errors.OutputError: ...releases/clinic holds no interrupted run
      hint: start one with `synthdp release SPEC`
    budget: nothing more was spent
    """
    from synthdp.ledger.connect import budget_noted
    from synthdp.release.linked import resume_linked
    from synthdp.release.run import resume as resume_run
    from synthdp.release.run_folder import kept_spec
    from synthdp.spec.load.loader import linked_in

    spec_path, folder = None if spec is None else Path(spec), Path(out).absolute()
    with budget_noted("nothing more was spent"):
        path, text = kept_spec(folder)
        linked = linked_in(text, path=str(path))
        _check_tables(df, linked)
    if linked is not None:
        check_plain({"spec": spec, "attack": attack == "never"})
        return Release.of_outcome(resume_linked(linked, folder, **_sealed(df)))
    return Release.of_outcome(resume_run(folder, spec_path=spec_path, attack=attack, **_sealed(df)))


@extra_named()
def attack(out: str | Path, df: pd.DataFrame | None = None) -> Release:
    """Run the attack that the release in the folder `out` has put off, without paying.

    The internal report and MLflow get its figures. It is on the rows as they are now: nothing was
    kept that could tell whether they changed.

    Args:
        out: the output folder of the release.
        df: the rows again, where the run began with a DataFrame.

    Raises:
        OutputError: no release in `out` has an attack to run.
        DataError, GateError: as for a new release.

    >>> import synthdp
    >>> synthdp.attack("releases/clinic")
    Traceback (most recent call last):
    synthdp.errors.OutputError: .../releases/clinic holds no release whose attack is still to run
      hint: an attack is put off with `synthdp release SPEC --attack later`
    """
    from synthdp.release.run import run_attack

    return Release.of_outcome(run_attack(Path(out).absolute(), **_sealed(df)))


def _sealed(df: Rows | None) -> dict[str, Any]:
    """The rows behind the seal, as the argument `given`; nothing where there are none."""
    from synthdp.privacy.readers.files import seal_dataframe

    if isinstance(df, Mapping):
        return {"given": {name: seal_dataframe(frame) for name, frame in df.items()}}
    return {} if df is None else {"given": seal_dataframe(df)}


@extra_named()
def audit_release(
    what: Spec | Bundle,
    df: pd.DataFrame | None = None,
    *,
    rows: Literal["none", "simulated", "real"] = "simulated",
    pairs: int = 100,
    out: str | Path | None = None,
) -> AuditRecord:
    """Audit a spec before its release, or a bundle; spends no budget.

    Args:
        what: a spec, whose planned mechanisms are audited, or a bundle.
        df: the real rows, for `rows="real"` of a spec whose rows are given from Python.
        rows: `none` replays the mechanisms alone, which takes seconds. `simulated` also plants
            canaries in a simulated twin and attacks it; the result is public. `real` takes the
            spec's own rows; the result is for the steward alone. A bundle has no real rows.
        pairs: random pairs of neighbours in the replay, beside the corner cases.
        out: where the record is kept [default: `releases/<dataset id>`, for a bundle
            `audits/<dataset id>`]. The next release into the same folder publishes a simulated one.

    Raises:
        VerifyError: a claim is refuted, or the bundle is not what it claims to be.
        OutputError: real rows are asked for of a bundle.
        DataError: the rows do not fit the spec.

    >>> import synthdp
    >>> record = synthdp.audit_release(synthdp.Bundle("releases/clinic/bundle"), rows="none")
    >>> record.rows, record.refuted
    ('none', ())
    """
    from synthdp.audit.plan import DO_NOT_RELEASE, DO_NOT_USE, audit, audit_bundle, check_unrefuted
    from synthdp.privacy.readers.files import seal_dataframe

    target = None if out is None else Path(out).absolute()
    if isinstance(what, Bundle):
        if rows == "real" or df is not None:
            raise OutputError(
                "a bundle holds no real rows to audit", hint="audit the spec that made it"
            )
        record, _ = audit_bundle(what.path, replay_only=rows == "none", out=target, pairs=pairs)
        check_unrefuted(record, hint=DO_NOT_USE)
        return record
    given = None if df is None else seal_dataframe(df)
    spec = what if df is None else what.of_dataframe(df)
    target = target or Path("releases").absolute() / spec.content.dataset.id
    record, _ = audit(spec.path, rows=rows, out=target, pairs=pairs, text=spec.text, given=given)
    check_unrefuted(record, hint=DO_NOT_RELEASE)
    return record
