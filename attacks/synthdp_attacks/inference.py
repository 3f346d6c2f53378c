"""Attribute inference: guess one column of a record from the others and the release.

Giomi et al. (2023), the inference attack. A release that teaches how columns hang together in the
population makes such guesses right for everybody; that is what it is for, and shows in the control.
What counts is how much better they are for its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from synthdp_attacks.checks import columns_asked, whole
from synthdp_attacks.errors import AttackError
from synthdp_attacks.hamming import hamming
from synthdp_attacks.risk import Risk, Trials, risk_of
from synthdp_attacks.threat import Codes, Public

Guess = Callable[[Codes, Codes, Codes, int], Codes]


def closest_rows(known: Codes, secret: Codes, asked: Codes, seed: int) -> Codes:
    """The most frequent level among the closest synthetic rows.

    All rows at the least distance count.
    """
    levels = np.eye(int(secret.max()) + 1, dtype=np.float32)[secret]
    votes = [
        (d == d.min(axis=1, keepdims=True)).astype(np.float32) @ levels
        for _, d in hamming(asked, known)
    ]
    return np.asarray(np.concatenate(votes).argmax(axis=1))


def forest(known: Codes, secret: Codes, asked: Codes, seed: int) -> Codes:
    """The prediction of a random forest that was fitted to the synthetic rows.

    Its trees are fully grown, so that they remember copies.
    """
    fitted = RandomForestClassifier(
        n_estimators=100, min_samples_leaf=1, random_state=seed, n_jobs=1
    ).fit(known, secret)
    return np.asarray(fitted.predict(asked))


GUESSERS: dict[str, Guess] = {"closest": closest_rows, "forest": forest}


def inference(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    public: Public,
    secret: int,
    rng: np.random.Generator,
    known: Sequence[int] | None = None,
    guesser: str = "closest",
    guesses: int = 500,
) -> Risk:
    """How often column `secret` is guessed right for `members`, and for `control`.

    The guesses use the columns `known` (None: all others).

    The naive guess is the release's most frequent level, which needs no knowledge of the record.
    """
    columns = range(len(public.sizes))
    (secret,) = columns_asked("secret", [secret], len(columns))
    held = list(
        columns_asked(
            "known", [c for c in columns if c != secret] if known is None else known, len(columns)
        )
    )
    if secret in held:
        raise AttackError(
            f"secret={secret} is one of the columns known={held}: leave it out there, or guess"
            " another"
        )
    guesses = whole("guesses", guesses, least=1)
    if guesser not in GUESSERS:
        raise AttackError(f"unknown guesser {guesser}; known: {', '.join(GUESSERS)}")
    seed = int(rng.integers(2**31))
    own, other = (table[rng.permutation(len(table))[:guesses]] for table in (members, control))

    def right(targets: Codes) -> Trials:
        return Trials.of(
            GUESSERS[guesser](synthetic[:, held], synthetic[:, secret], targets[:, held], seed)
            == targets[:, secret]
        )

    usual = np.bincount(synthetic[:, secret]).argmax()
    return risk_of(
        f"inferring column {secret} by {guesser}",
        attack=right(own),
        control=right(other),
        naive=Trials.of(own[:, secret] == usual),
    )
