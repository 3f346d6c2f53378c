"""Mode predict: which noisy two-way tables to pay for, and what they say without their noise."""
