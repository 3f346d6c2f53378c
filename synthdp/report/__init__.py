"""Two reports: a confidential one with figures of real rows, a public one of published files."""

from synthdp import door

__getattr__ = door(
    __name__,
    "prose sections index public.content public.sections public.page internal.content "
    "internal.page internal.sections verdicts",
)
