"""Attacks on releases of synthetic data, with honest statistics.

The package stands alone: it sees what an adversary would see.

With a trainer, many shadow models are trained and lower bounds on epsilon follow:

report = attack_membership(table, trainer, public=Public(sizes), targets=isolated_targets(table, 1,
rng),
                           pairs=100, rng=rng, fleet=Fleet(folder=Path("attack"), runner=Loky(2)))

With one release of any origin and rows that its trainer had and had not, nothing is trained and no
bound follows:

report = attack_release(synthetic, members, non_members, reference, public=Public(sizes), rng=rng)
report = attack_anonymity(synthetic, members, non_members, public=Public(sizes), secrets=[3],
rng=rng)
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synthdp_attacks.anonymity import AnonymityReport, Risk, attack_anonymity
    from synthdp_attacks.fleet import RUNNERS, Fleet, Progress, tell_share
    from synthdp_attacks.game import (
        SELECTORS,
        Game,
        GameOutcome,
        declared_targets,
        isolated_targets,
        play,
        random_targets,
    )
    from synthdp_attacks.membership import MAIN, attack_membership, judge
    from synthdp_attacks.one_release import ShadowFreeReport, attack_release
    from synthdp_attacks.report import AttackRow, AttackVerdict, MembershipReport
    from synthdp_attacks.runners import Dask, FleetError, Loky, Runner, Serial
    from synthdp_attacks.statistics import (
        Claim,
        Interval,
        ceiling_accuracy,
        ceiling_advantage,
        ceiling_from_profile,
        epsilon_lower_bound,
        provable_epsilon,
        shared_confidence,
    )
    from synthdp_attacks.tables import (
        NoisyCounts,
        attack_tables,
        best_table_advantage,
        table_ratio,
        table_score,
        two_worlds_ratio,
    )
    from synthdp_attacks.threat import (
        AttackError,
        Bins,
        GroupTrainer,
        Public,
        ThreatModel,
        Trainer,
        WhiteBox,
        decode,
        encode,
        public_of,
    )

__all__ = [
    "MAIN",
    "RUNNERS",
    "SELECTORS",
    "AnonymityReport",
    "AttackError",
    "AttackRow",
    "AttackVerdict",
    "Bins",
    "Claim",
    "Dask",
    "Fleet",
    "FleetError",
    "Game",
    "GameOutcome",
    "GroupTrainer",
    "Interval",
    "Loky",
    "MembershipReport",
    "NoisyCounts",
    "Progress",
    "Public",
    "Risk",
    "Runner",
    "Serial",
    "ShadowFreeReport",
    "ThreatModel",
    "Trainer",
    "WhiteBox",
    "attack_anonymity",
    "attack_membership",
    "attack_release",
    "attack_tables",
    "best_table_advantage",
    "ceiling_accuracy",
    "ceiling_advantage",
    "ceiling_from_profile",
    "declared_targets",
    "decode",
    "encode",
    "epsilon_lower_bound",
    "isolated_targets",
    "judge",
    "play",
    "provable_epsilon",
    "public_of",
    "random_targets",
    "shared_confidence",
    "table_ratio",
    "table_score",
    "tell_share",
    "two_worlds_ratio",
]
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, of the module that has it: who asks for statistics imports no fleet."""
        if name.startswith("_") or find_spec(f"{__name__}.{name}"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from synthdp_attacks import statistics, threat

        if home := next((h for h in (threat, statistics) if hasattr(h, name)), None):
            return getattr(home, name)
        from synthdp_attacks import (
            anonymity,
            fleet,
            game,
            membership,
            one_release,
            report,
            runners,
            tables,
        )

        homes = (anonymity, fleet, game, membership, one_release, report, runners, tables)
        if home := next((h for h in homes if hasattr(h, name)), None):
            return getattr(home, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
