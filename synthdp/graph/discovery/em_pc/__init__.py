"""EM-PC: PC by the exponential mechanism."""
