"""The trusted kernel: the only code that opens rows, adds noise, or charges the ledger."""
