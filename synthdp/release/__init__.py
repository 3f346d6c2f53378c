"""`synthdp release`: the run from a spec to a bundle, and the internal report."""

from synthdp import door

__getattr__ = door(
    __name__,
    "expectations graph_only job judge linked linked_plan played prior private_init run "
    "run_folder tracked",
)
