"""The synthesizer: a causally consistent variational autoencoder, its sampler and the raking of its
sample.
"""
