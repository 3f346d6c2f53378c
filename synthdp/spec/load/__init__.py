"""From a YAML file to a spec, with every mistake at its line and column."""
