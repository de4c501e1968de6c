"""Configurations and commands of the servers that gridlane is compared with, the same for the lab and for `bench/`.

Of the standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

# TLS 1.3 is not among the defaults of nginx before 1.23.4, and 1.2 takes a round trip more.
_NGINX_CONF = """\
{user}daemon off;
pid nginx.pid;
worker_processes auto;
error_log {error_log};
events {{ worker_connections 2048; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 10000000;
    default_type application/octet-stream;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        {listen}
        ssl_protocols TLSv1.3;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        {more}
        root {root};
        autoindex on;
        client_max_body_size 0;
        location /put/ {{ dav_methods PUT DELETE; create_full_put_path on; }}
    }}
}}
"""


def nginx_conf(listen: str, root: Path, certificate: Path, key: Path, error_log: str, more: str = "") -> str:
    """A configuration with `listen` directives of its own, and more of the server. Below /put/ it takes files."""
    user = "user root;\n" if os.getuid() == 0 else ""
    return _NGINX_CONF.format(
        user=user, listen=listen, root=root, certificate=certificate, key=key, error_log=error_log, more=more
    )


_APACHE_MODULES = ["mpm_event", "authz_core", "mime", "dir", "autoindex", "dav", "dav_fs"]
_APACHE_CONF = """\
{modules}ServerRoot {prefix}
PidFile {prefix}/apache.pid
ServerName localhost
{listen}User {user}
Group {user}
ErrorLog {error_log}
TypesConfig /dev/null
DocumentRoot {root}
DavLockDB {prefix}/db
KeepAlive on
MaxKeepAliveRequests 0
EnableSendfile on
{more}<Directory {root}>
    Require all granted
    Dav On
    DirectoryIndex disabled
</Directory>
"""
_APACHE_TLS = """\
SSLSessionCache shmcb:{prefix}/sessions
SSLProtocol TLSv1.3
{cipher}<VirtualHost {names}>
    SSLEngine on
    SSLCertificateFile {certificate}
    SSLCertificateKeyFile {key}
    DocumentRoot {root}
</VirtualHost>
"""


def apache_conf(
    prefix: Path,
    root: Path,
    http: Iterable[str],
    https: Iterable[str] = (),
    certificate: Path | None = None,
    key: Path | None = None,
    cipher: str | None = None,
    error_log: str = "error.log",
    more: str = "",
) -> str:
    """A configuration with mod_dav, that listens at addresses (`127.0.0.1:80`), over TLS at those of `https`."""
    modules, https = list(_APACHE_MODULES), list(https)
    if https:
        modules += ["socache_shmcb", "ssl"]
        suite = f"SSLCipherSuite TLSv1.3 {cipher}\n" if cipher else ""
        more += _APACHE_TLS.format(
            prefix=prefix, cipher=suite, names=" ".join(https), certificate=certificate, key=key, root=root
        )
    return _APACHE_CONF.format(
        modules="".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in modules),
        prefix=prefix,
        listen="".join(f"Listen {address}\n" for address in [*http, *https]),
        user="www-data",
        error_log=error_log,
        root=root,
        more=more,
    )


_XROOTD_CONF = """\
all.role server
all.export / {rights}
all.adminpath {directory}/admin
all.pidpath {directory}/admin
oss.localroot {root}
xrd.port {port}
xrd.network nodnr
xrd.trace off
xrootd.trace off
ofs.trace off
xrootd.chksum max 4 adler32 crc32c md5
"""
_XROOTD_TLS = """\
xrd.tls {directory}/certificate.pem {directory}/key.pem
xrootd.tls capable none
"""
# On the same port as root://.
_XROOTD_HTTP = """\
xrd.protocol http:{port} libXrdHttp.so
http.trace none
"""
# Third-party copies over HTTP; for outgoing connections the authorities that the server itself knows.
_XROOTD_HTTP_COPIES = "http.exthandler xrdtpc libXrdHttpTPC.so\n"
# Third-party copies over root://, made by the program that XRootD's manual names.
_XROOTD_ROOT_COPIES = "ofs.tpc autorm ttl 15 15 xfr 20 pgm {xrdcp} --server\n"


def xrootd_conf(
    directory: Path,
    root: Path,
    port: int,
    rights: str = "",
    has_tls: bool = False,
    has_http: bool = False,
    has_copies: bool = False,
    authority: Path | None = None,
    more: str = "",
) -> str:
    """A configuration of xrootd with its own state below `directory`, where certificate.pem and key.pem are its own.

    With an authority it believes other servers that have their certificate from it; otherwise it asks for none.
    """
    conf = _XROOTD_CONF.format(rights=rights, directory=directory, root=root, port=port)
    if has_tls:
        conf += _XROOTD_TLS.format(directory=directory)
        conf += f"xrd.tlsca certfile {authority}\n" if authority else "xrd.tlsca noverify\n"
    if has_http:
        conf += _XROOTD_HTTP.format(port=port)
    if has_copies:
        conf += _XROOTD_HTTP_COPIES if has_http else ""
        conf += _XROOTD_ROOT_COPIES.format(xrdcp=shutil.which("xrdcp") or "xrdcp")
    return conf + more


def as_user(user: str) -> list[str]:
    """Words before a command that refuses to run as root. By its own means of changing user it would outlive us."""
    if os.getuid() == 0:
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--pdeathsig=TERM", "--"]
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"]


def give_to(user: str, *paths: Path) -> None:
    """Makes files and directories, and what is in them, another user's, where that is possible."""
    if os.getuid() != 0:
        return
    for path in paths:
        for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
            shutil.chown(each, user, user)


def gridlane_serve(
    binary: str,
    export: Path,
    listen: Iterable[str],
    certificate: Path | None = None,
    key: Path | None = None,
    more: Sequence[object] = (),
) -> list[str]:
    """`gridlane serve` at addresses (`[::]:8443`), without an access log."""
    command = [binary, "serve", str(export), "--access-log", "off"]
    if certificate is not None:
        command += ["--cert", str(certificate), "--key", str(key)]
    for address in listen:
        command += ["--listen", address]
    return [*command, *map(str, more)]


def gridlane_conf(authority: Path) -> str:
    """Rules of `gridlane serve` by which clients with a certificate or proxy of an authority do everything, and others
    nothing."""
    return (
        f"[auth]\nclient-ca = [{json.dumps(str(authority))}]\n\n"
        '[[rule]]\nwho = "authenticated"\nmay = ["read", "list", "write", "delete"]\n'
    )


def gridftp_server(port: int, root: Path, is_anonymous: bool, more: Sequence[str] = ()) -> list[str]:
    """Debian's GridFTP server in the foreground. `root` is what clients see as /."""
    command = [
        "globus-gridftp-server",
        "-no-detach",
        "-port",
        str(port),
        "-auth-level",
        "0",
        "-log-level",
        "ERROR,WARN",
    ]
    if is_anonymous:
        user = "root" if os.getuid() == 0 else os.environ.get("USER", "nobody")
        command += ["-aa", "-anonymous-user", user]
    command += ["-allow-root"] if os.getuid() == 0 else []
    return [*command, "-home-dir", str(root), "-rp", str(root), *more]


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def with_port(address: str, port: int) -> str:
    """An address as URLs and configurations have it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
