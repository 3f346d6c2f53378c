"""The synthesizer: a causally consistent variational autoencoder, its sampler and raking."""

from synthdp import door

__getattr__ = door(
    __name__,
    "constraints estimands raking network synthesizer visits.draw visits.effects visits.laws "
    "visits.planning visits.questions interactions log_linear planning target_stage",
)
