"""The synthesizer: a causally consistent variational autoencoder, its sampler and raking."""
