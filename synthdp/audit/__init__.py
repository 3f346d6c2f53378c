"""`synthdp audit`: attacks on a release, on a bundle, and on the mechanisms."""

from synthdp import door

__getattr__ = door(
    __name__,
    "mechanisms.calls mechanisms.planned mechanisms.replay mechanisms.verdict folder linked "
    "membership shadow_models",
)
