"""Attacks on synthetic data releases, measured honestly. Stands alone: sees what an adversary would see.

report = attack_membership(table, trainer, public=Public(sizes), targets=isolated_targets(table, 1, rng),
                           pairs=100, rng=rng, fleet=Fleet(folder=Path("attack"), runner=Loky(2)))
"""

from attacks.dask_runner import Dask
from attacks.epsilon import Claim, ceiling_accuracy, ceiling_advantage, ceiling_from_profile, epsilon_lower_bound, provable_epsilon
from attacks.errors import AttackError, FleetError
from attacks.fleet import RUNNERS, Fleet, Progress
from attacks.game import Game, Outcome, play
from attacks.membership import MAIN, attack_membership, judge
from attacks.report import AttackRow, MembershipReport
from attacks.runners import Loky, Runner, Serial
from attacks.statistics import Interval
from attacks.targets import SELECTORS, declared_targets, isolated_targets, random_targets
from attacks.threat import GroupTrainer, Public, ThreatModel, Trainer

__all__ = [
    "MAIN",
    "RUNNERS",
    "SELECTORS",
    "AttackError",
    "AttackRow",
    "Claim",
    "Dask",
    "Fleet",
    "FleetError",
    "Game",
    "GroupTrainer",
    "Interval",
    "Loky",
    "MembershipReport",
    "Outcome",
    "Progress",
    "Public",
    "Runner",
    "Serial",
    "ThreatModel",
    "Trainer",
    "attack_membership",
    "ceiling_accuracy",
    "ceiling_advantage",
    "ceiling_from_profile",
    "declared_targets",
    "epsilon_lower_bound",
    "isolated_targets",
    "judge",
    "play",
    "provable_epsilon",
    "random_targets",
]
