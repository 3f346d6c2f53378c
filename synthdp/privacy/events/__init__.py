"""Privacy events: each kind knows its cost, its JSON, how it widens, and its words."""
