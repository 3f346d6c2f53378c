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
    from synthdp_attacks.anonymity import *  # noqa: F403
    from synthdp_attacks.fleet import *  # noqa: F403
    from synthdp_attacks.game import *  # noqa: F403
    from synthdp_attacks.membership import *  # noqa: F403
    from synthdp_attacks.one_release import *  # noqa: F403
    from synthdp_attacks.report import *  # noqa: F403
    from synthdp_attacks.runners import *  # noqa: F403
    from synthdp_attacks.statistics import *  # noqa: F403
    from synthdp_attacks.tables import *  # noqa: F403
    from synthdp_attacks.threat import *  # noqa: F403

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
