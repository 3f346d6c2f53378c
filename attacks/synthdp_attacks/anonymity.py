"""Three risks of data protection law for one release: singling out, linkability, inference.

The same limit as for all attacks on one release (`synthdp_attacks.one_release`): rows of one
training run give no bound on epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthdp_attacks.checks import columns_asked, parties_asked, whole
from synthdp_attacks.errors import AttackError
from synthdp_attacks.inference import GUESSERS, inference
from synthdp_attacks.linkability import linkability
from synthdp_attacks.one_release import MINIMUM_ROWS
from synthdp_attacks.report import CAVEAT
from synthdp_attacks.risk import Risk
from synthdp_attacks.singling_out import singling_out
from synthdp_attacks.threat import Codes, Public


@dataclass(frozen=True)
class AnonymityReport:
    """All risks that were asked for, each with a 95% interval.

    Of 40 harmless risks one is shown by chance.
    """

    risks: tuple[Risk, ...]

    @property
    def shown(self) -> tuple[Risk, ...]:
        """Risks whose interval lies above 0, the greatest lower limit first."""
        return tuple(
            sorted(
                (r for r in self.risks if r.shown), key=lambda r: -(r.risk.lower if r.risk else 0)
            )
        )

    @property
    def conclusion(self) -> str:
        """What was shown, how many attacks were too weak to show anything, and the caveat."""
        if not self.shown:
            weak = sum(not risk.beats_naive for risk in self.risks)
            told = (
                f"None of {len(self.risks)} attacks was seen to learn more about the rows behind"
                " the release than about control rows"
            )
            return f"{told}; {weak} of them beat no naive guess, and so say nothing. {CAVEAT}"
        worst = self.shown[0]
        assert worst.risk is not None
        numbers = (
            f"risk {worst.risk.value:.3f}, 95% interval {worst.risk.lower:.3f} to"
            f" {worst.risk.upper:.3f}"
        )
        rest = (
            f"{len(self.shown)} of {len(self.risks)} attacks learned more about the rows behind the"
            " release than about control rows"
        )
        return f"{rest}, the worst by {worst.question} ({numbers}). {CAVEAT}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a report or a run's record."""
        return {
            "conclusion": self.conclusion,
            "confidential": (
                "computed on the rows given to the attack; publish only if those were public or"
                " simulated"
            ),
            "risks": [risk.to_json() for risk in self.risks],
        }


def attack_anonymity(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    public: Public,
    secrets: Sequence[int],
    rng: np.random.Generator,
    parties: tuple[Sequence[int], Sequence[int]] | None = None,
    guesses: int = 500,
) -> AnonymityReport:
    """Ask the three questions of one release. Tables are codes `[rows, columns]` inside `public`.

    `members`: rows the trainer had; `control`: rows of the same population that it had not.
    `secrets`: columns to infer, each from all others. `parties`: the columns of the two who want to
    link (None: an even split by chance). At most `guesses` each.

    Raises:
        AttackError: a table outside the domain or too small, or columns that cannot be asked for.
    """
    tables = (
        public.checked(synthetic, "synthetic"),
        public.checked(members, "members"),
        public.checked(control, "control"),
    )
    for name, table in zip(("synthetic", "members", "control"), tables, strict=True):
        if len(table) < MINIMUM_ROWS:
            raise AttackError(
                f"{name} has {len(table)} rows; at least {MINIMUM_ROWS} are needed, and some"
                " hundreds to say much"
            )
    columns = len(public.sizes)
    if columns < 2:
        raise AttackError("a table of one column has nothing to link or infer from")
    guesses, secrets = (
        whole("guesses", guesses, least=1),
        columns_asked("secrets", secrets, columns) if len(secrets) else (),
    )
    if parties is not None:
        parties = parties_asked(parties, columns)
    shuffled = [int(c) for c in rng.permutation(columns)]
    risks = [
        singling_out(*tables, public=public, rng=rng, width=1, guesses=guesses),
        singling_out(*tables, public=public, rng=rng, guesses=guesses),
        linkability(
            *tables, parties=parties or (shuffled[::2], shuffled[1::2]), rng=rng, guesses=guesses
        ),
    ]
    risks += [
        inference(*tables, public=public, secret=c, rng=rng, guesser=how, guesses=guesses)
        for c in secrets
        for how in GUESSERS
    ]
    return AnonymityReport(tuple(risks))
