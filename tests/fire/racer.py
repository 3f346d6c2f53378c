"""`python racer.py URL RACERS EPSILON CAP [BREAKAGE]`: many processes race for the last of a cap,
each a whole release.

All are forked, wait for one signal, and then open the ledger, reserve, charge twice and settle.
Prints one
JSON object: `won` and `refused` by the cap (numbers), `failed` (every other end, as text),
`seconds`.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from synthdp.errors import BudgetError
from synthdp.ledger import Ledger
from synthdp.ledger import database as ledger_database

PATIENCE = 100  # seconds, after which a racer counts as deadlocked
WON, REFUSED = 0, 3
EVENT = {"event": "gaussian", "noise_multiplier": 2.0}


def whole_release(url: str, name: str, epsilon: float, cap: float) -> None:
    """What a release does to the ledger."""
    ledger = Ledger(url)
    ledger.reserve("raced", name, epsilon=epsilon, delta=1e-9, cap=(cap, 1e-3), body={"by": name})
    for purpose in ("measure", "train"):
        ledger.charge("raced", name, purpose=purpose, mechanism="m", event=EVENT)
    ledger.settle("raced", name)


def break_it(kind: str) -> None:
    """Break the ledger as `kind` says; a suite that stays green with this is worthless."""
    if kind == "no lock":
        ledger_database._lock = lambda connection: None  # type: ignore[assignment]
    elif kind == "check before the lock":
        fresh = Ledger.reserve

        def reserve(self: Ledger, dataset: str, run: str, **wanted: Any) -> Any:
            self.check(dataset, epsilon=wanted["epsilon"], delta=wanted["delta"], cap=wanted["cap"])
            time.sleep(0.05)
            if self.balance(dataset).cap_epsilon is None:
                return fresh(self, dataset, run, **wanted)
            with ledger_database.writing(self._engine) as connection:
                return ledger_database.append(
                    connection,
                    dataset,
                    run,
                    "reserve",
                    {"epsilon": wanted["epsilon"], "delta": wanted["delta"]},
                )

        Ledger.reserve = reserve  # type: ignore[method-assign, assignment]
    else:
        raise SystemExit(f"unknown breakage {kind}")


def racer(start: int, report: int, url: str, number: int, epsilon: float, cap: float) -> int:
    """One forked racer; its exit status."""
    signal.alarm(PATIENCE)
    os.read(start, 1)  # closed by the parent: all begin
    try:
        whole_release(url, f"racer-{number}", epsilon, cap)
    except BudgetError as error:
        if "needs" in str(error):
            return REFUSED
        os.write(report, f"{number}: {error}\n".encode()[:500])
        return 1
    except Exception as error:
        os.write(report, f"{number}: {type(error).__name__}: {error}\n".encode()[:500])
        return 1
    return WON


@contextmanager
def clock() -> Iterator[list[float]]:
    """The block's seconds, in the list."""
    seconds: list[float] = []
    began = time.monotonic()
    yield seconds
    seconds.append(time.monotonic() - began)


def main(url: str, racers: int, epsilon: float, cap: float) -> dict[str, Any]:
    """Run the race."""
    start_read, start_write = os.pipe()
    report_read, report_write = os.pipe()
    children = []
    for number in range(racers):
        child = os.fork()
        if child == 0:
            os.close(start_write)
            os._exit(racer(start_read, report_write, url, number, epsilon, cap))
        children.append(child)
    os.close(report_write)
    with clock() as seconds:
        os.close(start_write)
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    with os.fdopen(report_read) as told:
        failed = told.read().splitlines()
    failed += [f"ended by signal {-e} (deadlock)" for e in ends if e < 0]
    return {
        "won": ends.count(WON),
        "refused": ends.count(REFUSED),
        "failed": failed,
        "seconds": round(seconds[0], 2),
    }


if __name__ == "__main__":
    if len(sys.argv) > 5:
        break_it(sys.argv[5])
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))))
