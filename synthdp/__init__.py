"""synthdp: private synthetic data with a causal graph, one privacy budget and a bundle anyone can
verify.
"""

__version__ = "0.1.0"
