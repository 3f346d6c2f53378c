"""SVT-PC: PC by the sparse vector technique."""
