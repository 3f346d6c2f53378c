from synthdp import door

__getattr__ = door(
    __name__,
    "formats formats.dot pag tables validation contrib.anm_direction contrib.rank_pc "
    "contrib.rcit_pc causal discovery.measuring knowledge prior stage "
    "margins missing_patterns picture trend",
)
