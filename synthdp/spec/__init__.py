"""The YAML contract (`models`) and its loader (`load`)."""
