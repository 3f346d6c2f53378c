"""The public bundle: what may leave, the certificate, and the files for those who use the data."""

from synthdp import door

__getattr__ = door(
    __name__,
    "audit_record certificate_text descriptions linked linked_files noisy_values signing "
    "table_files content write",
)
