"""`python -m tests.differential --pairs N --seed S --processes P`: releases on neighbouring tables,
which must be the same to the byte.

Prints how far it is, each difference with the seed that finds it again (`--only SEED`), and in the
end pairs, published ones and CPU seconds by mode. The exit status says whether something differed.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.differential.cases import drawn
from tests.differential.harness import Base, told
from tests.differential.tables import neighbour

PAIRS = 24  # neighbours of a first table
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk's fsync is most of the time
EVERY = 10  # cases between two lines of progress


@dataclass
class Tried:
    """Neighbours of one case, and what differed."""

    mode: str
    pairs: int = 0
    published: bool = False
    seconds: float = 0.0
    ended: str = ""
    differing: list[str] = field(default_factory=list)


def tried(seed: int, *, pairs: int = PAIRS) -> Tried:
    """The case of `seed`, and `pairs` neighbours of its first table."""
    began, rng = time.process_time(), np.random.default_rng(seed)
    case, table = drawn(rng)
    replace = case.spec["privacy"].get("adjacency") == "replace_one"
    replace |= case.spec["dataset"]["rows"]["kind"] == "public"
    with tempfile.TemporaryDirectory(prefix="differential-", dir=MEMORY) as folder:
        base = Base.of(case, table, Path(folder) / "run", seed=str(seed))
        done = Tried(case.mode, published=base.outcome.published, ended=base.outcome.ended)
        for _ in range(pairs):
            name, other = neighbour(table, rng, replace=replace)
            if found := base.differences(other):
                done.differing.append(f"seed {seed}, {case.name}, {name}:\n{told(found)}")
            done.pairs += 1
    done.seconds = time.process_time() - began
    return done


def results(seeds: list[int], processes: int) -> Iterator[Tried]:
    """What was found of each seed, as it comes."""
    if processes == 1:
        yield from map(tried, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(tried, seeds)


def main() -> None:
    """Entry point; the exit status says whether something differed."""
    options = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    options.add_argument("--pairs", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--only", type=int, help="the seed of one case")
    given = options.parse_args()
    cases = -(-given.pairs // PAIRS)
    seeds = [given.seed * 1_000_000 + i for i in range(cases)]
    found = list[Tried]()
    try:
        for done in results(seeds if given.only is None else [given.only], given.processes):
            found.append(done)
            for text in done.differing:
                print(text, flush=True)
            if len(found) % EVERY == 0:
                print(f"{sum(d.pairs for d in found)} pairs so far", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    summary(found)
    sys.exit(1 if any(done.differing for done in found) else 0)


def summary(found: list[Tried]) -> None:
    """Print pairs, published ones and CPU seconds by mode, and of all."""
    ends = Counter[str]()
    for done in found:
        ends[done.ended] += done.pairs
    for mode in (*sorted({done.mode for done in found}), "all"):
        own = [done for done in found if mode in (done.mode, "all")]
        pairs = sum(done.pairs for done in own)
        published = sum(done.pairs for done in own if done.published)
        differ = sum(len(done.differing) for done in own)
        spent = sum(done.seconds for done in own) / max(1, pairs)
        print(f"{mode}: {pairs} pairs, {published} published, {differ} differ, {spent:.2f} CPU s")
    print("the first tables ended: " + ", ".join(f"{n} {end}" for end, n in ends.most_common()))


if __name__ == "__main__":
    main()
