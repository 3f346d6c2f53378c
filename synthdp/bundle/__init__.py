"""The public bundle: what may leave, the certificate, and the files for those who use the data."""

from synthdp.bundle.write import BundleContent, check_content, check_target, write_bundle

__all__ = ["BundleContent", "check_content", "check_target", "write_bundle"]
