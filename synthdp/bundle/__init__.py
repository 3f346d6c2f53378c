"""The public bundle: what may leave, the certificate, and the files for those who use the data."""
