"""TLS identities, made by openssl: an authority, and a certificate by it for the hosts that take part.

Of the standard library only: `bench/` uses it as well.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

_NEW = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "14"]

# Globus believes an authority only within the names that a file beside it grants it.
_SIGNING_POLICY = """\
access_id_CA X509 '{subject}'
pos_rights globus CA:sign
cond_subjects globus '"*"'
"""


class IdentityError(Exception):
    """What openssl says."""


class Identity:
    """An authority, and a certificate by it for some hosts: ECDSA P-256."""

    def __init__(self, directory: Path, hosts: Iterable[str], name: str = "gridlane-lab") -> None:
        directory.mkdir(mode=0o755, exist_ok=True)
        self.authority = directory / "authority.pem"
        # The same, as davix and Globus want it: by the hash of its name.
        self.authority_directory = directory / "authorities"
        self.certificate, self.key = directory / "certificate.pem", directory / "key.pem"
        self._authority_key = directory / "authority-key.pem"
        subject = f"/CN={name} authority"
        _run(*_NEW, "-subj", subject, "-keyout", self._authority_key, "-out", self.authority)
        names = "subjectAltName=" + ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
        self.issue(f"/CN={name}", self.certificate, self.key, names)
        self.authority_directory.mkdir(exist_ok=True)
        hashed = _run("openssl", "x509", "-in", self.authority, "-noout", "-hash").strip()
        (self.authority_directory / f"{hashed}.0").write_bytes(self.authority.read_bytes())
        (self.authority_directory / f"{hashed}.signing_policy").write_text(_SIGNING_POLICY.format(subject=subject))

    def issue(self, subject: str, certificate: Path, key: Path, *extensions: str) -> None:
        """Another certificate by the same authority."""
        more = [word for extension in extensions for word in ("-addext", extension)]
        _run(
            *_NEW, "-CA", self.authority, "-CAkey", self._authority_key, "-subj", subject, *more,
            "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate,
        )  # fmt: skip
        key.chmod(0o600)


def _is_address(host: str) -> bool:
    return host[0].isdigit() or ":" in host


def _run(*command: object) -> str:
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise IdentityError("openssl is not installed; apt-get install openssl") from None
    if done.returncode:
        raise IdentityError(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout
