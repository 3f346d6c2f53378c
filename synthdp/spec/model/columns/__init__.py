"""The types of columns (`types`), with all that a type is for the rest of the spec."""
