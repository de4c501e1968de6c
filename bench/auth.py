#!/usr/bin/env python3
"""Costs of authentication to a server: handshakes with and without certificates, and requests with credentials.

Writes bench/results/auth-DATE.json and docs/performance/auth.md, which says what to know before reading.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from program import Arguments, Run, in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
from processes import cpu_s, free_port, printed
from report import environment, head, interval, save
from running import start
from stats import summarize

ROOM_BYTES = 100_000_000


def main():
    options = arguments()
    return in_memory(ROOM_BYTES, lambda work: Bench(options, work).run())


def arguments():
    arguments = Arguments("bench-auth", "Costs of authentication to a server.", "3 short pairs", load="tls_load")
    arguments.amount("pairs", 15, 3, "pairs of runs per row")
    arguments.amount("connections", 4000, 400, "connections of a run")
    arguments.amount("requests", 40_000, 4000, "requests of a run")
    arguments.page("auth.md")
    return arguments.parse()


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.rows = []

    def run(self):
        run = Run("auth", self.options)
        self.prepare()
        self.handshakes()
        self.first_sight()
        self.requests()
        if not self.rows:
            sys.exit(no_such_row(self.options))
        return run.finish(
            self.rows, lambda path, facts, stolen: write_page(path, self.options.command, facts, self.rows, stolen),
        )

    # --- What there is to measure ---------------------------------------------------------------------

    def prepare(self):
        export = self.work / "export"
        export.mkdir()
        (export / "small").write_bytes(b"x" * 1000)
        pki = self.work / "pki"
        # The keys of the grid are RSA still, but for that of the server: so that nginx costs what it costs with that.
        self.gridlane("pki", "init", str(pki), "--key", self.rsa_key("authority"))
        self.gridlane("pki", "host", str(pki), "localhost")
        self.gridlane("pki", "voms", str(pki), "bench", "--key", self.rsa_key("voms"))
        self.gridlane("pki", "user", str(pki), "ada", "--key", self.rsa_key("ada"))
        self.host = pki / "hosts/localhost"
        self.authorities = pki / "certificates"
        self.ca = next(self.authorities.glob("*.0"))
        self.proxy = self.fake_proxy(pki)
        # nginx takes no proxies: it is shown what the proxy was made of.
        self.user = self.work / "ada-both.pem"
        self.user.write_text((pki / "users/ada/usercert.pem").read_text() + (self.work / "ada.pem").read_text())
        self.issuer = Issuer(self.work, self.host)
        os.environ["SSL_CERT_FILE"] = str(self.ca)
        secret = self.work / "secret"
        secret.write_text(printed("openssl", "rand", "-base64", "64"))
        secret.chmod(0o600)
        users = self.work / "users"
        users.write_text(printed("htpasswd", "-nbB", "ada", "swordfish"))
        users.chmod(0o600)
        port = free_port()
        config = self.work / "serve.toml"
        config.write_text(f"""\
[serve]
listen = ["127.0.0.1:{port}"]
server-name = "localhost"
cert = "{self.host}/hostcert.pem"
key = "{self.host}/hostkey.pem"
access-log = "off"

[auth]
client-ca-dir = "{self.authorities}"
voms-dir = "{pki}/vomsdir"
audiences = ["https://localhost:{port}"]
macaroon-secrets = "{secret}"
users = "{users}"

[[auth.issuer]]
url = "{self.issuer.url}"

[[export]]
path = "/data"
directory = "{export}"

[[rule]]
who = "anyone"
may = ["read", "list"]
""")
        self.serve = Server("gridlane serve", port, [self.options.gridlane, "serve", "--config", str(config), "--quiet"])
        self.nginx = self.start_nginx(export)
        self.nginx_users = self.start_nginx(export, f"ssl_verify_client optional; ssl_client_certificate {self.ca}; ssl_verify_depth 5;")
        token = self.issuer.token(aud=f"https://localhost:{port}", scope="storage.read:/", sub="ada")
        macaroon = json.loads(printed(
            "curl", "--silent", "--fail", "--cacert", str(self.ca), "--user", "ada:swordfish", "--header",
            "Content-Type: application/macaroon-request", "--data", '{"validity": "PT4H"}', f"https://localhost:{port}/data/",
        ))["macaroon"]
        basic = base64.b64encode(b"ada:swordfish").decode()
        self.credentials = {"token": f"Bearer {token}", "macaroon": f"Bearer {macaroon}", "password": f"Basic {basic}"}
        print(f"{self.options.pairs} pairs of {self.options.connections} connections, or {self.options.requests} requests")

    def gridlane(self, *words):
        subprocess.run([self.options.gridlane, *words], check=True, stdout=subprocess.DEVNULL)

    def rsa_key(self, name):
        key = self.work / f"{name}.pem"
        printed("openssl", "genrsa", "-out", str(key), "2048")
        key.chmod(0o400)
        return str(key)

    def fake_proxy(self, pki):
        """A proxy with a key of RSA, with attributes of VOMS."""
        user, voms, proxy = pki / "users/ada", pki / "voms/bench", self.work / "proxy.pem"
        printed(
            "voms-proxy-fake", "-cert", str(user / "usercert.pem"), "-key", str(user / "userkey.pem"), "-hostcert",
            str(voms / "vomscert.pem"), "-hostkey", str(voms / "vomskey.pem"), "-voms", "bench", "-uri", "localhost:15000",
            "-fqan", "/bench/Role=production", "-rfc", "-bits", "2048", "-hours", "12", "-out", str(proxy),
            env=dict(os.environ, X509_CERT_DIR=str(self.authorities)),
        )
        return proxy

    def start_nginx(self, export, more=""):
        """nginx as the benchmarks configure it, but for the certificates of clients."""
        port = free_port()
        prefix = self.work / f"nginx-{port}"
        prefix.mkdir()
        user = "user root;" if os.getuid() == 0 else ""
        (prefix / "nginx.conf").write_text(f"""\
{user}
daemon off; pid nginx.pid; worker_processes auto; error_log error.log;
events {{ worker_connections 512; }}
http {{
    access_log off; sendfile on; keepalive_requests 1000000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    ssl_session_cache shared:all:20m;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_protocols TLSv1.3; ssl_certificate {self.host}/hostcert.pem; ssl_certificate_key {self.host}/hostkey.pem; {more}
        location /data/ {{ alias {export}/; }}
    }}
}}
""")
        return Server("nginx", port, ["nginx", "-p", str(prefix), "-c", str(prefix / "nginx.conf")])

    # --- Rows ------------------------------------------------------------------------------------------

    def handshakes(self):
        for name, mode, proxy, target, peer in (
            ("full handshakes, ECDSA P-256", "full", False, 2000, self.nginx),
            ("full handshakes, RSA proxy with VOMS", "full", True, 1000, self.nginx_users),
            ("resumed", "resumed", False, 4000, self.nginx),
            ("resumed, RSA proxy with VOMS", "resumed", True, 4000, self.nginx_users),
        ):
            if not is_chosen(name, self.options):
                continue
            ours, theirs = self.in_turns(lambda server: self.load(server, mode, self.options.connections, proxy), self.serve, peer)
            rates = summarize([run["count"] / run["server_cpu_s"] for run in ours])
            self.add({
                "kind": "handshakes", "name": name, "target": target, "ours": rates, "passed": rates["low"] >= target,
                "theirs": summarize([run["count"] / run["server_cpu_s"] for run in theirs]),
                "wall": summarize([run["count"] / run["seconds"] for run in ours]),
                "wall_theirs": summarize([run["count"] / run["seconds"] for run in theirs]),
            })

    def first_sight(self):
        """Proxies that the server has not seen: chain and attributes are judged each time."""
        name, target = "full handshakes, each with another proxy of an RSA user, with VOMS", 1000
        if not is_chosen(name, self.options):
            return
        count, runs = (100, 3) if self.options.quick else (300, self.options.pairs)
        pki, samples = self.work / "pki", []
        for _ in range(runs):
            proxies = self.work / "proxies"
            shutil.rmtree(proxies, ignore_errors=True)
            proxies.mkdir()
            for number in range(count):
                self.gridlane(
                    "auth", "proxy", "--quiet", "--cert", str(pki / "users/ada/usercert.pem"), "--key", str(pki / "users/ada/userkey.pem"),
                    "--voms", "bench:/bench/Role=production", "--voms-cert", str(pki / "voms/bench/vomscert.pem"),
                    "--voms-key", str(pki / "voms/bench/vomskey.pem"), "--out", str(proxies / f"{number}.pem"),
                )
            samples.append(self.load(self.serve, "full", count, proxies))
        rates = summarize([run["count"] / run["server_cpu_s"] for run in samples])
        self.add({
            "kind": "handshakes", "name": name, "target": target, "ours": rates, "passed": rates["low"] >= target, "theirs": None,
            "wall": summarize([run["count"] / run["seconds"] for run in samples]), "wall_theirs": None,
        })

    def requests(self):
        nothing = lambda: self.load(self.serve, "requests", self.options.requests, False)  # noqa: E731
        rows = [(f"seen {kind}", lambda value=value: self.load(self.serve, "requests", self.options.requests, False, value))
                for kind, value in self.credentials.items()]
        rows.append(("connection with an RSA proxy with VOMS", lambda: self.load(self.serve, "requests", self.options.requests, True)))
        for name, work in rows:
            if not is_chosen(name, self.options):
                continue
            with_it, without = self.in_turns(lambda work: work(), work, nothing)

            def added(key):
                return summarize([1e6 * (a[key] / a["count"] - b[key] / b["count"]) for a, b in zip(with_it, without)])

            waits, cpu = added("seconds"), added("server_cpu_s")
            self.add({
                "kind": "requests", "name": name, "target": 20, "ours": waits, "cpu": cpu, "passed": waits["high"] <= 20,
                "without": summarize([1e6 * run["seconds"] / run["count"] for run in without]),
            })

    def in_turns(self, work, one, other):
        for side in (one, other):
            work(side)  # not counted
        pairs = [(work(one), work(other)) for _ in range(self.options.pairs)]
        return [a for a, _ in pairs], [b for _, b in pairs]

    def load(self, server, mode, count, proxy, authorization=None):
        """One run of the client. Every answer has to be a good one, and as many sessions resumed as can be."""
        threads = 1 if mode == "requests" else 2
        command = [self.options.load, f"127.0.0.1:{server.port}", str(self.ca), mode, str(count), str(threads)]
        shown = self.proxy if server is self.serve else self.user
        command += [str(shown if proxy is True else proxy)] if proxy else []
        environment = dict(os.environ, TLS_LOAD_AUTHORIZATION=authorization) if authorization else None
        before = cpu_s(server)
        done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
        server_cpu = max(cpu_s(server) - before, 0.01)
        if done["granted"] != count:
            sys.exit(f"{server.name}: {count - done['granted']} of {count} requests were not granted")
        if mode == "resumed" and done["resumed"] < count - 2 * threads:
            sys.exit(f"{server.name}: only {done['resumed']} of {count} connections were resumed")
        return {"count": count, "seconds": done["seconds"], "server_cpu_s": server_cpu}

    def add(self, row):
        self.rows.append(row)
        ours = row["ours"]
        verdict = "pass" if row["passed"] else "FAIL"
        print(f"{row['name']:44} {ours['median']:9.1f} [{ours['low']:.1f}, {ours['high']:.1f}] {verdict}", flush=True)


class Server:
    """A server that answers on a port."""

    def __init__(self, name, port, command, **options):
        self.name, self.port = name, port
        self.process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} does not start: {' '.join(command)}") from None
                time.sleep(0.02)


class Issuer:
    """The issuer of the tokens of a run."""

    def __init__(self, work, host):
        self.key = work / "issuer.pem"
        printed("openssl", "genrsa", "-out", str(self.key), "2048")
        modulus = printed("openssl", "rsa", "-in", str(self.key), "-noout", "-modulus").strip().partition("=")[2]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(host / "hostcert.pem", host / "hostkey.pem")
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "e": "AQAB", "n": base64url(bytes.fromhex(modulus))}
        documents = {"/jwks": {"keys": [key]}}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(documents.get(self.path, {})).encode()
                self.send_response(200 if self.path in documents else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.url = f"https://localhost:{server.server_port}/"
        documents["/.well-known/openid-configuration"] = {"issuer": self.url, "jwks_uri": f"{self.url}jwks"}
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def token(self, **claims):
        now = int(time.time())
        claims |= {"iss": self.url, "iat": now, "nbf": now - 60, "exp": now + 4 * 3600, "jti": "bench", "wlcg.ver": "1.0"}
        parts = [{"alg": "RS256", "kid": "one", "typ": "JWT"}, claims]
        signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
        done = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=signed.encode(), capture_output=True, check=True)
        return f"{signed}.{base64url(done.stdout)}"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def write_page(path, command, facts, rows, stolen):
    """Markdown, the caveats first."""
    n = rows[0]["ours"]["n"]
    lines = [
        *head("Authentication: figures", "bench/auth.py", command),
        f"- Client and server share {facts['cores']} cores over loopback. Handshakes are counted per second of the server's own CPU time,",
        "  which is what one core does; beside it stand those per second of the clock with two clients at once.",
        "- Each connection is a TCP connection, a TLS 1.3 handshake, one request of 1000 bytes and its end. The client is `tls_load`",
        "  (crates/net/examples), the same program against both servers. The server's key is ECDSA P-256.",
        "- The proxy, its user and the authority have RSA keys of 2048 bits, and the proxy an attribute certificate of VOMS. nginx takes",
        "  no proxies: it is shown the user's certificate, one signature less to look at, and knows nothing of VOMS, rules, or",
        "  revocation lists.",
        "- A proxy is the same in all connections of a row: chain and attributes are judged when it is seen first and known afterwards;",
        "  only the proof that the client has its key is new each time. In the row of proxies that are seen once, all is judged; those",
        "  are `gridlane auth proxy`'s, with keys of ECDSA P-256.",
        "- A credential was seen before the run that counts. \"Adds\" is the time of a request with it less that of one without, one after",
        "  the other on one connection, in the same pair.",
        f"- n = {n} pairs of alternating runs (A B A B); medians with the 95 % interval of the median by order statistics. Of rates the",
        "  lower end counts, of times the higher.",
        f"- {stolen:.0f} % of the CPU time was stolen by the hypervisor during the runs.",
        "",
        *environment(facts),
        "",
        "## Handshakes",
        "",
        "| connections | gridlane, per core and second | nginx, per core and second | gridlane, by the clock | nginx, by the clock | target | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | :---: |",
    ]
    verdict = {True: "met", False: "**missed**"}
    lines += [
        f"| {row['name']} | {interval(row['ours'])} | {interval(row['theirs']) if row['theirs'] else ''} | {row['wall']['median']:.0f} | "
        f"{format(row['wall_theirs']['median'], '.0f') if row['wall_theirs'] else ''} | ≥ {row['target']} | {verdict[row['passed']]} |"
        for row in rows if row["kind"] == "handshakes"
    ]
    lines += [
        "",
        "## Requests",
        "",
        "| what is presented | adds µs | adds µs of CPU | request without, µs | target | |",
        "| --- | ---: | ---: | ---: | ---: | :---: |",
    ]
    lines += [
        f"| {row['name']} | {interval(row['ours'], 1)} | {interval(row['cpu'], 1)} | {row['without']['median']:.1f} | "
        f"≤ {row['target']} | {verdict[row['passed']]} |"
        for row in rows if row["kind"] == "requests"
    ]
    save(path, lines)


if __name__ == "__main__":
    sys.exit(main())
