"""A release's spec from Python: load it, see its plan, run it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from synthdp.api.release import Release, check_plain, check_tables, preformatted, sealed
from synthdp.errors import OutputError, SpecError, SpecProblem, extra_named
from synthdp.progress import stage

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.api.drafts import Checked
    from synthdp.ledger.entries import Balance
    from synthdp.release.expectations import ColumnProspect
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
        from synthdp.api.drafts import check

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
        from synthdp.spec.load.loader import replaced, with_lists

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
        counted: Callable[[ColumnProspect], object] | None = None,
    ) -> tuple[BudgetPlan, Balance]:
        """The plan, whether or not the ledger allows it, and what the ledger says. `counted` hears
        what noise does to each column before all else is known.

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
        facts = plan_facts(spec, balance, warnings=others, counted=counted)
        if what_if:
            from synthdp.release.what_if import what_if as at_epsilons

            epsilons = list(map(float, what_if))
            with stage("what if"):
                facts |= {"what_if": at_epsilons(self.text, epsilons)}
        if half_width is not None:
            from synthdp.release.what_if import reaching

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
        given = {"text": spec.text, "out": target.absolute(), "force": force, **sealed(df)}
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
        check_tables(df, self.linked)
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

        return plan_cards(self.facts) if "quality" in self.facts else preformatted(self)
