"""Two reports: a confidential one with figures of real rows, a public one of published files."""

from synthdp import door

__getattr__ = door(
    __name__,
    "index internal.appendix internal.content internal.page prose public.content "
    "public.sections sections public.page",
)
