"""The public bundle: what may leave, the certificate, and the files for those who use the data."""

from synthdp.bundle.folder import check_target
from synthdp.bundle.signing import Signer, load_signer, make_keys
from synthdp.bundle.write import BundleContent, check_content, write_bundle

__all__ = ["BundleContent", "Signer", "check_content", "check_target", "load_signer", "make_keys", "write_bundle"]
