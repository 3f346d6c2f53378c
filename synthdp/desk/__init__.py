"""A local page on which a spec is written: what it does, commands do too."""
