"""The membership game: models with and without the target, one synthetic set each.

The game keeps the membership bits secret.

Stadler, Oprisanu, Troncoso (2022), "Synthetic data - anonymisation groundhog day", section 3, and
Algorithm 1 of the causally constrained synthesis paper, with one correction: *one* synthetic set
per independently trained model, and models split by pair. Several sets per model, split at random,
let a classifier recognise the model rather than the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from synthdp_attacks.fleet import Fleet, identity_of
from synthdp_attacks.threat import (
    AttackError,
    BoolArray,
    Codes,
    FloatArray,
    GroupTrainer,
    Public,
    ThreatModel,
    Trainer,
    WhiteBox,
    hamming,
    whole,
)

# --- units: the rows of one unit come and go together ---
#
# Where a person has several rows, the neighbours of differential privacy differ in all of them,
# and they give the person away together. `units` has a whole number for each row: rows of one
# number are of one unit. Without it each row is a unit, named by its position.


@dataclass(frozen=True)
class Others:
    """Rows `[rows, columns]` from which whole units are drawn."""

    rows: Codes = field(repr=False)
    units: Codes | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        return len(self.rows) if self.units is None else len(self._parts)

    def of(self, chosen: Codes) -> Codes:
        """The rows of units, by their places `[units]` in 0 .. count-1."""
        places = chosen
        if self.units is not None:
            empty = np.zeros(0, dtype=np.intp)
            places = np.concatenate([empty, *(self._parts[unit] for unit in chosen)])
        return np.asarray(self.rows[places])

    @cached_property
    def _parts(self) -> list[Codes]:
        """The positions of each unit's rows."""
        assert self.units is not None
        _, place = np.unique(self.units, return_inverse=True)
        ends = np.cumsum(np.bincount(place))[:-1]
        return list(np.split(np.argsort(place, kind="stable"), ends)) if len(place) else []


def apart(rows: Codes, target: int, units: Codes | None) -> tuple[Codes, Others]:
    """The rows of the unit `target` `[its rows, columns]`, and all others."""
    if units is None:
        return rows[target : target + 1], Others(np.delete(rows, target, axis=0))
    own = units == target
    return rows[own], Others(rows[~own], units[~own])


def checked_units(units: Sequence[int] | Codes | None, rows: Codes) -> Codes | None:
    """`units` as an array.

    Raises:
        AttackError: not one whole number for each row.
    """
    if units is None:
        return None
    numbers = np.asarray(units)
    if numbers.shape != (len(rows),) or not np.issubdtype(numbers.dtype, np.integer):
        raise AttackError(
            f"units: got {numbers.dtype} of shape {numbers.shape}; needs a whole number for each of"
            f" {len(rows)} rows, the same for rows of one unit"
        )
    return numbers


MINIMUM_PAIRS = 4
_SCORE = "score "  # before a white-box score's name in a result file


@dataclass(frozen=True)
class GameOutcome:
    """Scores of an attack and the true membership bits, shape `[models]`.

    A score above 0 is a guess of "member".
    """

    scores: FloatArray
    members: BoolArray

    @classmethod
    def together(cls, outcomes: list[GameOutcome]) -> GameOutcome:
        scores, members = zip(*((o.scores, o.members) for o in outcomes), strict=True)
        return cls(np.concatenate(scores), np.concatenate(members))


@dataclass(frozen=True)
class Game:
    """A game that was played. Shadow models come with their bits, challenges without.

    `target`: the rows of the unit that is asked about, `[its rows, columns]`. `shadows`,
    `challenges`: one synthetic set per model; models of one pair are always on the same
    side. `shadow_members`: the bits of the shadows; `shadow_pairs`: which shadows belong together.
    `lost`: pairs dropped because a training always killed its worker. `shadow_scores`,
    `challenge_scores`: white-box scores of the target by name, one for each model, in the order of
    the sets; empty for a black box. Nothing that came from rows shows in its `repr`.
    """

    target: Codes = field(repr=False)
    shadows: tuple[Codes, ...] = field(repr=False)
    shadow_members: BoolArray = field(repr=False)
    shadow_pairs: Codes = field(repr=False)
    challenges: tuple[Codes, ...] = field(repr=False)
    lost: int
    _members: BoolArray = field(repr=False)
    shadow_scores: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    challenge_scores: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)

    def reveal(self, scores: FloatArray) -> GameOutcome:
        """Lay the adversary's scores for the challenges, in their order, beside the secret bits.

        Raises:
            AttackError: not exactly one finite score for each challenge.
        """
        if scores.shape != (len(self.challenges),) or not np.isfinite(scores).all():
            raise AttackError(
                f"got scores of shape {scores.shape}; needs one finite score for each of"
                f" {len(self.challenges)} challenges"
            )
        return GameOutcome(np.asarray(scores, dtype=np.float64), self._members.copy())

    def row_counts_differ(self, public: Public) -> bool:
        """Whether the number of released rows, of the first kind, alone tells worlds apart, among
        the shadows.
        """
        first = public.columns[0]
        counts = np.array([public.of_kind(rows, first).sum() for rows in self.shadows])
        return set(counts[self.shadow_members]) != set(counts[~self.shadow_members])

    def control(self, rng: np.random.Generator) -> Game:
        """A game nobody can win, from the shadow models *without* the target and meaningless bits.

        Costs no training. Any attack must be at chance here; if it is not, the measuring is broken.
        """
        outs = rng.permutation(np.flatnonzero(~self.shadow_members))
        pairs = len(outs) // 2
        if pairs < 2:
            raise AttackError(
                f"{len(outs)} models without the target are too few for a control: play at least 8"
                " pairs"
            )
        used = outs[: 2 * pairs]
        scores = {name: values[used] for name, values in self.shadow_scores.items()}
        sets, bits = [self.shadows[i] for i in used], rng.integers(2, size=pairs).astype(bool)
        return _split(self.target, sets, scores, bits, lost=0, rng=rng)


@dataclass(frozen=True)
class _Work:
    """Trains the models of the game; a task knows its place only by its index, and seeds itself."""

    others: Others
    target: Codes = field(repr=False)
    trainer: Trainer
    threat: ThreatModel
    entropy: tuple[int, ...]
    first_has_target: BoolArray
    control: bool
    identity: str
    public: Public | None
    score_names: tuple[str, ...]

    @property
    def group(self) -> int:
        """Models that one task trains side by side, where the trainer can."""
        return self.trainer.group if isinstance(self.trainer, GroupTrainer) else 1

    def __call__(self, index: int) -> dict[str, Codes | FloatArray]:
        return self._checked(self.trainer(self._rows(index), seed_sequence=self._seed(2, index)))

    def many(self, indices: Sequence[int]) -> Iterator[dict[str, Codes | FloatArray]]:
        assert isinstance(self.trainer, GroupTrainer)
        rows = list(map(self._rows, indices))
        seeds = [self._seed(2, index) for index in indices]
        for released in self.trainer.many(rows, seed_sequences=seeds):
            yield self._checked(released)

    def _checked(self, released: Codes | WhiteBox) -> dict[str, Codes | FloatArray]:
        """The adversary's view of one model, checked.

        An error shows at the first model, not after the last.
        """
        seen = _seen(released, self.target)
        if self.public is not None:
            self.public.checked(seen["synthetic"].astype(np.int64), "a synthetic set")
        scores = sorted(name.removeprefix(_SCORE) for name in seen if name != "synthetic")
        if missing := sorted(set(self.score_names) - set(scores)):
            told = f"the trainer returned {', '.join(scores) or 'none: let it return a WhiteBox'}"
            raise AttackError(
                f"unknown extractor or white-box score {missing[0]}; of white-box scores {told}"
            )
        return seen

    def _rows(self, index: int) -> Codes:
        """What model `index` is trained on, in an order that says nothing."""
        pair, second = divmod(index, 2)
        member = bool(self.first_has_target[pair]) != bool(second) and not self.control
        rows = self._training_rows(pair, member)
        order = np.random.default_rng(self._seed(1, index)).permutation(len(rows))
        return np.asarray(rows[order])

    def _seed(self, *key: int) -> np.random.SeedSequence:
        # Made afresh in the task: a shared SeedSequence counts its children and so differs between
        # backends.
        return np.random.SeedSequence(self.entropy, spawn_key=key)

    def _training_rows(self, pair: int, member: bool) -> Codes:
        """The rest, shared by the models of a pair, with the target or what stands in for it."""
        size = self.threat.size(self.others.count)
        key = 0 if self.threat.knowledge == "rest" else 1 + pair
        drawn = np.random.default_rng(self._seed(0, key)).permutation(self.others.count)
        rest = self.others.of(drawn[:size])
        if member:
            return np.concatenate([rest, self.target])
        if self.threat.relation == "add_remove":
            return rest
        fresh = np.random.default_rng(self._seed(3, pair)).choice(drawn[size:])
        return np.concatenate([rest, self.others.of(fresh[None])])

    def fingerprint(self) -> str:
        """A digest of the whole game, so that results of another game are not continued.

        It is as confidential as the results.
        """
        rows, units = self.others.rows, self.others.units
        parts = (self.entropy, self.threat, rows.shape, self.control, self.identity)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=16)
        for array in (rows, self.target, *([] if units is None else [units])):
            digest.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
        return digest.hexdigest()


def play(
    rows: Codes,
    target: Codes,
    trainer: Trainer,
    *,
    pairs: int,
    rng: np.random.Generator,
    fleet: Fleet,
    threat: ThreatModel | None = None,
    control: bool = False,
    public: Public | None = None,
    score_names: Sequence[str] = (),
    units: Codes | None = None,
) -> Game:
    """Train `pairs` models with `target` and `pairs` without; one synthetic set each.

    `target` is one row `[columns]`, or all rows of a unit `[its rows, columns]`. `rows`
    `[rows, columns]` are the *other* rows, and `units` the number of each one's unit, where a unit
    has several. A white-box score of a unit is the sum over its rows. A game of the same arguments
    and the same state of `rng` continues what it finds in the fleet's folder. With `control`,
    neither world ever has the target. Every model is held to what the attacks will need as soon as
    it is there: codes inside `public`, and white-box scores of `score_names`.

    Raises:
        AttackError: too few pairs or rows, or a trainer that does not return codes.
        FleetError: the folder belongs to another game, or workers cannot start.
    """
    if pairs < MINIMUM_PAIRS:
        raise AttackError(
            f"pairs={pairs}; at least {MINIMUM_PAIRS} are needed to split by pair, and 100 to say"
            " much"
        )
    rows, target = np.asarray(rows), np.atleast_2d(np.asarray(target))
    if rows.ndim != 2 or target.shape[1:] != rows.shape[1:] or not len(target):
        raise AttackError(
            f"target has {target.shape[1:]} columns, rows have {rows.shape[1:]}: both must be of"
            " one encoding, and none without rows"
        )
    threat = threat or ThreatModel()
    others = Others(rows, checked_units(units, rows))
    threat.size(others.count)
    entropy = tuple(map(int, rng.integers(2**32, size=4)))
    first = rng.integers(2, size=pairs).astype(bool)
    identity, names = fleet.identity or identity_of(trainer), tuple(score_names)
    work = _Work(others, target, trainer, threat, entropy, first, control, identity, public, names)
    harvest = fleet.run(work, 2 * pairs, fingerprint=work.fingerprint())
    kept = [p for p in range(pairs) if not {2 * p, 2 * p + 1} & set(harvest.failed)]
    if len(kept) < MINIMUM_PAIRS:
        raise AttackError(
            f"trainings that always kill their worker spoiled {pairs - len(kept)} of {pairs} pairs:"
            " mend the trainer"
        )
    seen = [harvest.results[2 * p + s] for p in kept for s in (0, 1)]
    if any(s.keys() != seen[0].keys() for s in seen):
        raise AttackError(
            "models of one game have white-box scores of different names: let the trainer return"
            " the same for all rows"
        )
    scores = {
        name.removeprefix(_SCORE): np.array([float(s[name]) for s in seen])
        for name in sorted(seen[0].keys() - {"synthetic"})
    }
    sets = [s["synthetic"] for s in seen]
    return _split(target, sets, scores, first[kept], lost=pairs - len(kept), rng=rng)


def _seen(released: Codes | WhiteBox, target: Codes) -> dict[str, Codes | FloatArray]:
    """The adversary's view of one model, as arrays for its result file.

    It is the synthetic set, and white-box scores of the target, summed over its rows.
    """
    white = released if isinstance(released, WhiteBox) else WhiteBox(released, {})
    synthetic = np.asarray(white.synthetic)
    whole = np.issubdtype(synthetic.dtype, np.integer)
    if synthetic.shape[1:] != target.shape[1:] or not whole:
        raise AttackError(
            f"the trainer returned {synthetic.dtype} of {synthetic.ndim} dimensions; needs codes"
            f" [rows, {target.shape[1]}]"
        )
    if not len(synthetic):
        raise AttackError(
            "the trainer returned a synthetic set without rows: release at least one, better as"
            " many as it was trained on"
        )
    scores = {
        name: np.asarray(list(map(score, target)), dtype=np.float64).sum(axis=0)
        for name, score in white.scores.items()
    }
    if bad := [name for name, value in scores.items() if value.ndim or not np.isfinite(value)]:
        raise AttackError(
            f"white-box score {bad[0]} of the target is not one finite number: clip it in the"
            " trainer"
        )
    return {"synthetic": synthetic} | {_SCORE + name: value for name, value in scores.items()}


def _split(
    target: Codes,
    sets: list[Codes],
    scores: Mapping[str, FloatArray],
    first_has_target: BoolArray,
    *,
    lost: int,
    rng: np.random.Generator,
) -> Game:
    """Deal whole pairs to the two halves: sets and scores `2p` and `2p+1` are pair p."""
    pairs = len(first_has_target)
    order = rng.permutation(pairs)
    half = pairs // 2
    members = np.stack([first_has_target, ~first_has_target], axis=1).ravel()
    shadow = (2 * order[:half, None] + np.arange(2)).ravel()
    # Challenges come in an order that says nothing about pairs.
    challenge = rng.permutation((2 * order[half:, None] + np.arange(2)).ravel())
    return Game(
        target=target,
        shadows=tuple(sets[i] for i in shadow),
        shadow_members=members[shadow],
        shadow_pairs=shadow // 2,
        challenges=tuple(sets[i] for i in challenge),
        lost=lost,
        _members=members[challenge],
        shadow_scores={name: values[shadow] for name, values in scores.items()},
        challenge_scores={name: values[challenge] for name, values in scores.items()},
    )


# --- targets: whom to attack ---
#
# The choice matters more than the classifier (Meeus, Guepin, Cretu, de Montjoye, 2023, "Achilles'
# heels"): an average row hides in its neighbours, an isolated one does not.


def random_targets(
    rows: Codes, count: int, rng: np.random.Generator, units: Codes | None = None
) -> tuple[int, ...]:
    """Positions of `count` different rows, or numbers of units, uniformly at random."""
    names = _names(rows, count, units)
    return tuple(int(names[i]) for i in rng.choice(len(names), size=count, replace=False))


def isolated_targets(
    rows: Codes, count: int, rng: np.random.Generator, units: Codes | None = None
) -> tuple[int, ...]:
    """Positions of the `count` most isolated rows, most isolated first.

    Ties go to rarer levels, then by `rng`. With `units` they are numbers of units, which are as
    isolated and as rare as their rows are together.
    """
    names = _names(rows, count, units)
    rare, alone = rarity(rows), isolation(rows, units=units)
    if units is not None:
        _, place = np.unique(units, return_inverse=True)
        rare = np.bincount(place, weights=rare).astype(np.float64)
        alone = np.bincount(place, weights=alone).astype(np.float64)
    order = np.lexsort((rng.permutation(len(names)), -rare, -alone))
    return tuple(int(names[i]) for i in order[:count])


def declared_targets(
    rows: Codes, positions: Sequence[int], units: Codes | None = None
) -> tuple[int, ...]:
    """The named positions, or numbers of units, checked.

    Raises:
        AttackError: none, one twice, or one outside the table.
    """
    asked = np.asarray(positions)
    if asked.ndim != 1 or not len(asked) or not np.issubdtype(asked.dtype, np.integer):
        raise AttackError(
            f"targets={positions!r}; needs a list of row positions, at least one, each a whole"
            " number: see isolated_targets"
        )
    there = np.arange(len(rows)) if units is None else units
    if len(set(asked.tolist())) < len(asked) or not np.isin(asked, there).all():
        raise AttackError(
            f"targets={asked.tolist()}; needs different positions within the table, counted from 0"
            " and never from the end"
            + ("" if units is None else "; with `units`, numbers that stand there")
        )
    return tuple(map(int, asked))


def isolation(rows: Codes, *, neighbours: int = 5, units: Codes | None = None) -> FloatArray:
    """Mean Hamming distance of each row to its nearest others, of other units: `[rows]`.

    The distance is the share of columns that differ, in 0 .. 1.
    """
    total, columns = rows.shape
    own = np.arange(total) if units is None else units
    nearest = min(neighbours, total - int(np.unique(own, return_counts=True)[1].max(initial=0)))
    if nearest < 1:
        raise AttackError(f"{total} rows; isolation needs at least 2 of different units")
    result = np.empty(total)
    for part, distance in hamming(rows, rows):
        distance[own[part][:, None] == own] = columns + 1  # not its own neighbour
        closest = np.partition(distance, nearest - 1, axis=1)[:, :nearest]
        result[part] = closest.mean(axis=1) / columns
    return result


def rarity(rows: Codes) -> FloatArray:
    """Sum over columns of -log(share of rows with the same level), in nats; shape `[rows]`."""
    total = np.zeros(len(rows))
    for column in rows.T:
        counts = np.bincount(column)
        total -= np.log(counts[column] / len(rows))
    return total


def _names(rows: Codes, count: int, units: Codes | None) -> Codes:
    """What targets are named by, of which `count` are asked for."""
    names = np.arange(len(rows)) if units is None else np.unique(units)
    if whole("count", count, least=1) > len(names):
        allowed = "rows" if units is None else "units"
        raise AttackError(
            f"asked for {count} targets; the table allows between 1 and its number of {allowed}"
        )
    return names
