"""A release's spec from Python: load it, see its plan, run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthdp.api.plan import BudgetPlan
from synthdp.api.release import Release, run_release
from synthdp.errors import extra_named

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.spec.model import ReleaseSpec


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
        content: all its fields with their defaults.

    >>> import synthdp
    >>> synthdp.Spec.load("clinic.yaml")
    Spec('clinic.yaml': dataset 'clinic', 3 columns, epsilon 1, graph given)
    """

    text: str
    path: Path
    content: ReleaseSpec

    def __init__(self, text: str, *, path: str | Path) -> None:
        from synthdp.spec.load.loader import parse_spec

        self.text, self.path = text, Path(path).resolve()
        self.content = parse_spec(text, path=str(path))

    @classmethod
    def load(cls, path: str | Path) -> Spec:
        """The spec in a YAML file.

        Raises:
            SpecError: the file cannot be read, or has mistakes.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").content.columns["age"].upper
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
        from synthdp.errors import OutputError
        from synthdp.spec.load.lists import with_lists

        if not Path(folder).is_dir():
            hint = "give the folder that has, or is to have, the dataset's ledger"
            raise OutputError(f"there is no folder {folder}", hint=hint)
        path = Path(folder) / NO_FILE
        return cls(with_lists(_yaml(content), path=NO_FILE, folder=Path(folder)), path=path)

    @extra_named()
    def plan(self, *, what_if: Sequence[float] = (), rehearse: bool = False) -> BudgetPlan:
        """Every spend that a release of this spec would make; reads no rows and spends nothing.

        Args:
            what_if: other epsilons, at most 8, of which `BudgetPlan.what_if` tells what each would
                give; about a second each.
            rehearse: run a release on simulated rows, without a ledger, and tell in
                `BudgetPlan.rehearsal` how good its answers and its table are; takes as long as
                training does.

        Raises:
            OutputError: an epsilon that no spec may have.
            BudgetError: the ledger's cap does not allow the release.
            VerifyError: the ledger was damaged.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().dataset
        'clinic'
        >>> list(synthdp.Spec.load("clinic.yaml").plan(what_if=[0.5, 2]).what_if["epsilon"])
        [0.5, 2.0]
        """
        from synthdp.ledger.connect import balance_of, check_affordable, entries_of, other_ids
        from synthdp.ledger.domain_search import check_domain_from
        from synthdp.release.plan_view import plan_facts
        from synthdp.verify.at_hand import check_nearby

        dataset = self.content.dataset.id
        entries, balance = entries_of(self.content, self.path), balance_of(self.content, self.path)
        check_domain_from(self.content, entries)
        check_nearby(entries, dataset, Path("releases") / dataset)
        check_affordable(self.content, balance)
        warnings = other_ids(self.content, entries)
        facts = plan_facts(self.content, balance, warnings=warnings)
        if what_if:
            from synthdp.release.what_if import what_if as at_epsilons

            facts |= {"what_if": at_epsilons(self.text, [float(e) for e in what_if])}
        if rehearse:
            from synthdp.release.rehearse import rehearse as on_simulated_rows

            facts |= {"rehearsal": on_simulated_rows(self.content)}
        return BudgetPlan.of_facts(facts)

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

        from synthdp.privacy.readers.dataframe import seal_dataframe
        from synthdp.release.misfits import misfits_for_steward

        spec = self if df is None else self.of_dataframe()
        given = None if df is None else seal_dataframe(df)
        found = misfits_for_steward(spec.content, spec.path, given=given, examples=examples)
        names = ["column", "kind", "rows", *(["examples"] if examples else [])]
        told = [(m.column, m.kind, m.rows, m.examples)[: len(names)] for m in found]
        return pd.DataFrame(told, columns=names)

    @extra_named()
    def release(
        self,
        df: pd.DataFrame | None = None,
        *,
        out: str | Path | None = None,
        force: bool = False,
        attack: Literal["now", "later"] = "now",
    ) -> Release:
        """Run the release: measure, train, sample, write the bundle, and judge it.

        A DataFrame takes the place of `dataset.source`, and the published spec says so. It is
        sealed like a file: each value is read by itself, and what the spec does not declare is
        refused. The ledger counts the release under `dataset.id`. The index is not read.

        Args:
            df: the rows, with a column for each column of the spec, and one for the ids of the
                privacy unit. Its dtypes must not follow from the rows (see
                `synthdp.privacy.readers.dataframe`).
            out: the output folder [default: `releases/<dataset id>`]; a relative one starts from
                the working folder as it is now.
            force: replace a bundle that is there, or drop an interrupted run.
            attack: "later" puts the declared attack off; `synthdp.attack` runs it.

        Raises:
            BudgetError: the ledger does not allow it. Nothing was spent.
            DataError: the rows do not fit the spec. A note on the error says what was spent.
            GateError: a gate failed. The budget is spent and there is no bundle.
            OutputError: `out` cannot be used, or the extra `release` is not installed.

        >>> import pandas as pd, synthdp
        >>> df = pd.read_csv("clinic.csv", dtype="str")
        >>> release = synthdp.Spec.load("clinic.yaml").release(df, out="releases/from-python")
        >>> release.bundle.spec.dataset.source.kind
        'dataframe'
        """
        spec = self if df is None else self.of_dataframe()
        target = (
            Path("releases") / spec.content.dataset.id if out is None else Path(out)
        ).absolute()
        return run_release(spec.path, spec.text, df, out=target, force=force, attack=attack)

    def of_dataframe(self) -> Spec:
        """The same spec with rows that are given from Python."""
        from synthdp.bundle.metadata.readme import SPEC_HEAD, spec_yaml
        from synthdp.spec.model import DataFrameSource

        dataset = self.content.dataset
        if isinstance(dataset.source, DataFrameSource):
            return self
        given = dataset.model_copy(update={"source": DataFrameSource(kind="dataframe")})
        text = spec_yaml(self.content.model_copy(update={"dataset": given}))
        return Spec(text.removeprefix(SPEC_HEAD), path=self.path)

    def __repr__(self) -> str:
        spec = self.content
        return (
            f"Spec({self.path.name!r}: dataset {spec.dataset.id!r}, {len(spec.columns)} columns,"
            f" epsilon {spec.privacy.epsilon:g}, graph {spec.graph.mode})"
        )


def _yaml(content: Mapping[str, Any]) -> str:
    """A mapping as YAML text.

    Raises:
        SpecError: it holds a value that YAML does not have.
    """
    import yaml

    from synthdp.errors import SpecError, SpecProblem

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    try:
        return yaml.dump(dict(content), Dumper=Dumper, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError) as error:
        what = type(error.args[1]).__name__ if len(error.args) > 1 else type(error).__name__
    message = f"holds a value that YAML does not have ({what})"
    hint = "use plain dicts, lists, texts, numbers, booleans and None"
    raise SpecError([SpecProblem("spec", 1, 1, "spec", message, hint)])
