"""TLS identities, made by openssl: an authority, and a certificate by it for the hosts that take part.

Of the standard library only: `bench/` uses it as well.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ECDSA = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
RSA = ("-newkey", "rsa:2048", "-nodes")
_NEW = ["openssl", "req", "-x509", "-days", "14"]

# Globus believes an authority only within the names that a file beside it grants it.
_SIGNING_POLICY = """\
access_id_CA X509 '{subject}'
pos_rights globus CA:sign
cond_subjects globus '"*"'
"""

# `openssl x509` has no end but in days.
_PROXIES = """\
[ca]
default_ca = proxies
[proxies]
database = {directory}/index
new_certs_dir = {directory}
serial = {directory}/serial
default_md = sha256
policy = any
preserve = yes
unique_subject = no
x509_extensions = proxy
[any]
commonName = optional
[proxy]
keyUsage = critical,digitalSignature
proxyCertInfo = critical,language:id-ppl-inheritAll
"""
# How far a server's clock may be behind this one.
_PROXY_EARLIER_S = 300


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
        _run(*_NEW, *ECDSA, "-subj", subject, "-keyout", self._authority_key, "-out", self.authority)
        names = "subjectAltName=" + ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
        self.issue(f"/CN={name}", self.certificate, self.key, names)
        self.authority_directory.mkdir(exist_ok=True)
        hashed = _run("openssl", "x509", "-in", self.authority, "-noout", "-hash").strip()
        (self.authority_directory / f"{hashed}.0").write_bytes(self.authority.read_bytes())
        (self.authority_directory / f"{hashed}.signing_policy").write_text(_SIGNING_POLICY.format(subject=subject))

    def issue(
        self, subject: str, certificate: Path, key: Path, *extensions: str, key_type: Sequence[str] = ECDSA
    ) -> None:
        """Another certificate by the same authority."""
        more = [word for extension in extensions for word in ("-addext", extension)]
        _run(
            *_NEW, *key_type, "-CA", self.authority, "-CAkey", self._authority_key, "-subj", subject, *more,
            "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate,
        )  # fmt: skip
        key.chmod(0o600)


class User:
    """A user with a certificate by the authority, and proxies of it as RFC 3820 has them: a certificate that stands for
    the user's, with an end of its own. RSA: Globus signs with nothing else."""

    def __init__(self, identity: Identity, directory: Path, name: str = "gridlane-lab user") -> None:
        directory.mkdir(mode=0o700)
        self.subject = f"/CN={name}"
        self._certificate, self._key = directory / "certificate.pem", directory / "key.pem"
        identity.issue(self.subject, self._certificate, self._key, key_type=RSA)
        # One key for all proxies: making it takes longer than everything else.
        self._proxy_key = directory / "proxy-key.pem"
        _run("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self._proxy_key)
        self._conf = directory / "proxies.conf"
        self._conf.write_text(_PROXIES.format(directory=directory))
        (directory / "index").touch()
        self._directory = directory
        self._count = 0

    def write_proxy(self, path: Path, end_unix_s: int) -> None:
        """A proxy that ends then, as one file that only its owner reads: it is there as a whole or not at all."""
        self._count += 1
        request, certificate = self._directory / "request.pem", self._directory / "proxy.pem"
        subject = f"{self.subject}/CN={self._count}"
        _run("openssl", "req", "-new", "-key", self._proxy_key, "-subj", subject, "-out", request)
        begin = _as_openssl(time.time() - _PROXY_EARLIER_S)
        _run(
            "openssl", "ca", "-batch", "-notext", "-config", self._conf, "-rand_serial", "-in", request,
            "-cert", self._certificate, "-keyfile", self._key, "-startdate", begin,
            "-enddate", _as_openssl(end_unix_s), "-out", certificate,
        )  # fmt: skip
        temporary = path.with_name(f".{path.name}")
        temporary.touch(mode=0o600)
        temporary.write_text("".join(part.read_text() for part in (certificate, self._proxy_key, self._certificate)))
        os.replace(temporary, path)


def _as_openssl(unix_s: float) -> str:
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(unix_s))


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
