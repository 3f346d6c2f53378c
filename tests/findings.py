"""What two outside reviews of commit 3d0c082 found, and what became of it; `docs/dashboard.md`
lists it with the tests.

A test that fails on 3d0c082 because of a finding is marked `@pytest.mark.finding("redteam A1")`.
`tests/test_findings.py` sees that every finding that is called mended has such a test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Finding:
    """One numbered finding: what was found, and how it was mended (empty while it is open)."""

    name: str
    found: str
    mended: str


FINDINGS: tuple[Finding, ...] = (
    Finding(
        "math F1",
        found="One text with seven digits of a second changed how other rows' dates were read.",
        mended=(
            "Every value is read by one function of that value alone; 100,000 pairs of values are"
            " replayed."
        ),
    ),
    Finding(
        "math F2",
        found=(
            "Integer codes of 2^53 and more were rounded beside a missing value; ids in SQLite"
            " merged."
        ),
        mended=(
            "Whole numbers stay whole from Parquet and SQL; ids are compared as texts, one by one."
        ),
    ),
    Finding(
        "math F3",
        found=(
            "32-bit passes gave an example other numbers in another batch; at large weights more"
            " than was charged."
        ),
        mended=(
            "Examples go through the model in chunks of one shape, in slots that coins choose;"
            " weights are clamped; norms are proved."
        ),
    ),
    Finding(
        "math F4",
        found="A quotation mark that was never closed made one row of many lines.",
        mended=(
            "A field with a line break is refused, whatever out_of_domain says: a row is a line."
        ),
    ),
    Finding(
        "math F5",
        found="The proof for groups' sums supposed one order of additions in all layers.",
        mended=(
            "The bound holds for any order in each coordinate; blocks are of 96 examples at the"
            " same charge."
        ),
    ),
    Finding(
        "math F6",
        found="'Total effect' added up deltas, which a chain of bounds does not allow.",
        mended=(
            "The total effect is said to be a sum of k bounds and no chain; what changes with all"
            " statuses is bounded by the joint effect."
        ),
    ),
    Finding(
        "math F7 overflow",
        found="Scores of very large tables could pass 2^63.",
        mended=(
            "Products beyond 64 bits are Python's whole numbers; sums of moments are kept in 64-bit"
            " whole numbers."
        ),
    ),
    Finding(
        "math F7 discrete Gaussian",
        found="'No common bound over k' was said where a common zCDP bound exists.",
        mended=(
            "It says that there is one zero-concentrated bound for all k, and no one exact"
            " distribution."
        ),
    ),
    Finding(
        "math F7 clock",
        found="A bundle held times to the second, which go with the number of rows.",
        mended="Entries are dated to the day before they are hashed.",
    ),
    Finding(
        "math F7 today",
        found="`now` and `today` were read as dates, so that a row's level went with the clock.",
        mended="A date is written in full; `now` and `today` are misfits.",
    ),
    Finding(
        "math F7 graph command",
        found="An interrupted `graph orient x y` answered a later `graph orient a b`.",
        mended="The command is part of a run's state, and another one is refused.",
    ),
    Finding(
        "math 2.1",
        found="The bound on HSIC had no proof.",
        mended="The proof is in `dependence.hsic`, and a test takes each of its steps.",
    ),
    Finding(
        "math loose permutation bit",
        found="The permutation bit charged 3 d^2 where a search finds 1 d^2.",
        mended=(
            "An inserted row moves a shuffled statistic by at most sqrt(3/2) d^2, which is proved:"
            " 2.2 d^2 in all."
        ),
    ),
    Finding(
        "math loose selection",
        found="Selections were charged epsilon^2 / 2 a draw; bounded range allows epsilon^2 / 8.",
        mended=(
            "Noisy maxima are by Gumbel noise and charged for their bounded range, by the better of"
            " two proved bounds."
        ),
    ),
    Finding(
        "math loose several rows",
        found=(
            "Several rows of a unit in tables were charged by a Rényi bound, 5-10% of epsilon too"
            " much."
        ),
        mended=(
            "Tables of units of several rows get rounded Gaussian noise, whose cost is exact; a"
            " replaced unit moves counts by sqrt(2) k."
        ),
    ),
    Finding(
        "redteam A1",
        found="A copy of a run's folder gave a second look at the rows for one charge.",
        mended=(
            "The ledger says who holds a run; entries are written on the condition that the last"
            " one is the writer's own."
        ),
    ),
    Finding(
        "redteam A2",
        found="A journal that was older than the ledger ran a charged mechanism again.",
        mended=(
            "The ledger holds the digest of each value that is used; a missing or older file is"
            " refused for good."
        ),
    ),
    Finding(
        "redteam A3",
        found="`--force` took the folder of a living run.",
        mended=(
            "The folder's lock is taken before anything is moved, and each run writes below a"
            " folder with its own name."
        ),
    ),
    Finding(
        "redteam A4",
        found="`synthdp resume` turned a graph run into a whole release.",
        mended=(
            "The command is part of a run's state; `resume` refuses a graph run and says how to"
            " go on."
        ),
    ),
    Finding(
        "redteam A5",
        found="A deleted ledger was not noticed although the bundle that proves it lay in OUT.",
        mended=(
            "`plan` and `release` hold the ledger against the bundles at hand; the same columns"
            " under another id are told."
        ),
    ),
    Finding(
        "redteam A6",
        found="A delta far above 1 / rows was accepted for a table larger than declared.",
        mended="A table of 1 / delta rows or more is refused before anything is spent.",
    ),
    Finding(
        "redteam A7",
        found="Confidential files could be read by everybody.",
        mended=(
            "What is computed on rows, the ledger, MLflow's local store and runs in progress have"
            " modes 0700 and 0600, whatever the umask."
        ),
    ),
    Finding(
        "redteam B1",
        found="`verify` called a bundle without noise and with real rows 'valid'.",
        mended=(
            "`verify` tests the tables for noise and the rows for the model; its first line says"
            " what was established, and whose word is left."
        ),
    ),
    Finding(
        "redteam B2",
        found="A BIF file of 1 kB kept a regular expression busy for minutes.",
        mended="BIF is read in one pass, by patterns that never go back.",
    ),
    Finding(
        "redteam B3",
        found="Small BIF and DOT files asked for gigabytes.",
        mended=(
            "Tables of a BIF file are measured before they are made; links of a graph file are"
            " bounded as in a spec."
        ),
    ),
    Finding(
        "redteam B4",
        found="Nested GML and DOT files, and a count of 10^399, ended in internal errors.",
        mended=(
            "Depth is bounded, what networkx raises is told as a mistake of the file, and `sample`"
            " tells a number beyond all numbers."
        ),
    ),
    Finding(
        "redteam B5",
        found=(
            "Credentials in the tracking server's address reached the terminal; an unreachable"
            " server hung."
        ),
        mended=(
            "One function shows addresses, without users, passwords, queries and tokens; a server"
            " is asked once, for seconds."
        ),
    ),
    Finding(
        "redteam B6",
        found="`sample` believed a bundle that `verify` refuses.",
        mended=(
            "`sample` holds the files that it reads against the bundle's sums, and follows no link."
        ),
    ),
    Finding(
        "redteam B7",
        found="A small hostile bundle kept `verify` busy for half an hour.",
        mended=(
            "Purposes, steps, tables, loss and groups are bounded by the bundle's own spec, and"
            " only stated independences are checked."
        ),
    ),
    Finding(
        "redteam B8",
        found=(
            "A steward's name of megabytes went into ledger and bundle; look-alike names passed in"
            " silence."
        ),
        mended=(
            "The name is cut at 200 characters; names that differ by nothing the eye can see are"
            " refused."
        ),
    ),
    Finding(
        "redteam C1",
        found="A table that was plainly the wrong one spent the budget in silence.",
        mended=(
            "A table without rows is refused; a noisy total far from the declared number stops the"
            " run before training."
        ),
    ),
    Finding(
        "redteam C2",
        found="Times with a zone were moved in silence; half dates were filled in.",
        mended=(
            "Dates are written in full; a zone or a shorter text is a misfit, a zoned column of"
            " Parquet is refused."
        ),
    ),
    Finding(
        "redteam C3",
        found="Ids were compared as text: 1, 1.0, ' 1' and 01 were four units.",
        mended=(
            "Ids are compared without white space, whole numbers as numbers; the rule is in the"
            " reference."
        ),
    ),
    Finding(
        "redteam C4",
        found="A number whose decimals cannot show any of its bins was accepted.",
        mended=(
            "`validate` refuses decimals at which all values of the range are written alike, and"
            " says how many would do."
        ),
    ),
    Finding(
        "redteam C5",
        found="Messages about tables named the wrong cause.",
        mended=(
            "Messages name the cause: categories, zones, encoding, compression, fields of a line,"
            " URL, database, query."
        ),
    ),
    Finding(
        "redteam D2",
        found="Two first releases at once: one ended with an error of MLflow's store.",
        mended=(
            "MLflow's store is made aside and appears whole; opening it is tried for some seconds."
        ),
    ),
    Finding(
        "redteam D3",
        found="A ledger on a full or read-only disk: 'OperationalError'.",
        mended="A ledger that cannot be opened or written is told with the system's reason.",
    ),
    Finding(
        "redteam D4",
        found="Ctrl-C before anything was reserved spoke of resuming.",
        mended=(
            "An interruption says whether anything was spent, and speaks of resuming where there is"
            " something to resume."
        ),
    ),
    Finding(
        "redteam D5",
        found="SIGTERM ended a release without a word.",
        mended="SIGTERM ends a command as Ctrl-C does, with exit code 143.",
    ),
    Finding(
        "issue flaky stacked",
        found="tests/privacy/test_stacked.py failed by chance, twice in 560 runs.",
        mended=(
            "Starts have seeds, and gradients are compared before Adam takes them, which would make"
            " a whole step of a last bit."
        ),
    ),
    Finding(
        "issue flaky ablation",
        found="A synthetic label of one class crashed a learner.",
        mended=(
            "A table of one class teaches to say that class (AUC .5, accuracy its share); few rows"
            " and empty columns crash no learner either."
        ),
    ),
    Finding(
        "issue constraints",
        found=(
            "A constraint that no drawn row fulfils was found only after the whole attack, and"
            " `resume` failed again."
        ),
        mended=(
            "`validate` refuses equations between numbers (derived columns say them), constraints"
            " are tried right after training, and `resume --spec` mends post-processing under the"
            " same reservation."
        ),
    ),
    Finding(
        "mutant stored noise key",
        found="Noise keyed from the run's stored key lived: a resume would repeat the noise.",
        mended=(
            "A test opens one run three times: all keys but the holdout's come fresh from the"
            " operating system, and none lies in the folder."
        ),
    ),
    Finding(
        "mutant adjacency",
        found=(
            "`add_remove` after `replace_one` for one dataset was accepted by a mutant that lived."
        ),
        mended="Tests ask for both orders, at the ledger and by a spec.",
    ),
    Finding(
        "mutant verify reservation",
        found="`verify` without the check of the reserved epsilon and delta lived.",
        mended="A forged reservation with fitting hashes is a test.",
    ),
    Finding(
        "mutant run folder mode",
        found="A run's folder that everybody may read lived.",
        mended="A test holds the mode of the run's folder under three umasks.",
    ),
    Finding(
        "mutant misfits to MLflow",
        found="Counts of real rows' misfits logged to MLflow lived.",
        mended="A test names every figure that MLflow gets of a release on rows that misfit.",
    ),
    Finding(
        "mutant verify tolerance",
        found="`verify` with a tolerance of 1e-2 lived.",
        mended=(
            "An epsilon that is a hundredth of a percent too low, or beyond the spec, is a test."
        ),
    ),
    Finding(
        "mutant attacks share alpha",
        found="Three declared attacks at 95% each, instead of sharing it, lived.",
        mended="A test of the attack as a release makes it holds all three to 1 - .05 / 3 each.",
    ),
    Finding(
        "mutant units of k rows",
        found="Tables of units of k rows under replacement, charged as one row, lived.",
        mended=(
            "Spreads of replaced units, and tables of k rows under both relations, are held against"
            " what is charged."
        ),
    ),
    Finding(
        "mutant replay sqrt k",
        found="The replay's domain had one pair of numbers, so that a missing sqrt(k) lived.",
        mended=(
            "The replay has three columns of numbers and chooses two pairs at once, in examples and"
            " in plans."
        ),
    ),
)


def marked() -> Iterator[tuple[str, str]]:
    """(finding, test) of each test with the marker, read from the tests' source."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                test = f"{path.relative_to(TESTS.parent).as_posix()}::{node.name}"
                yield from (
                    (name, test) for decorator in node.decorator_list for name in _names(decorator)
                )


def _names(decorator: ast.expr) -> list[str]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.finding":
        return [
            a.value
            for a in decorator.args
            if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
    return []
