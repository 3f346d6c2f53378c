"""The YAML contract (`model`) and its loader (`load`)."""
