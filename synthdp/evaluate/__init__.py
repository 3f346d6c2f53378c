"""How good a synthetic table is: fidelity, utility, effects, and scores that are paid for."""
