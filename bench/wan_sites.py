"""The emulated network of a benchmark, the servers at its sites, and the client's namespace."""

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from processes import children, nginx_conf
from running import start

# How long a network or a server may take to begin.
_DEADLINE_S = 20


class Network:
    """A network that is up as long as this program runs, whatever ends it."""

    def __init__(self, gridlane, name, scenario):
        self._gridlane, self._name = gridlane, name
        # In the foreground: it goes down when its parent dies, and takes everything inside along.
        self.process = start(
            [gridlane, "wan", "up", str(scenario), "--name", name, "--foreground", "--json"],
            stdout=subprocess.PIPE,
        )
        line = self.process.stdout.readline()
        if not line or "error" in json.loads(line):
            sys.exit("the network does not come up; what gridlane says about that is above")

    def at(self, site, *command):
        """The command as it runs at a site. `wan exec` becomes the command: same process."""
        return [self._gridlane, "wan", "exec", "--name", self._name, site, "--", *map(str, command)]

    def show(self):
        command = [self._gridlane, "wan", "show", "--name", self._name, "--json"]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    def down(self):
        """Also when it died. Nothing to say when there is nothing left."""
        command = [self._gridlane, "wan", "down", "--name", self._name, "--quiet"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def set(self, link, *options):
        command = [self._gridlane, "wan", "set", "--name", self._name, link, *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    def connections(self, site, port):
        """What `ss` knows of the connections of a server: IP version and congestion control of each."""
        command = self.at(site, "ss", "-Htni", "state", "established", "sport", "=", f":{port}")
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found = []
        for line in shown.splitlines():
            if line[:1].isdigit():
                found.append({"family": 6 if "[" in line and "[::ffff:" not in line else 4})
            elif found:
                control = re.match(r"\s*(?:ts |sack |ecn |ecnseen )*(\w+)", line)
                found[-1]["congestion_control"] = control.group(1) if control else "unknown"
        return found


class Client:
    """Runs clients in a site's namespace: see wan_client.py."""

    def __init__(self, network, site, errors):
        self._errors = errors
        ours, theirs = socket.socketpair()
        with theirs:
            helper = Path(__file__).with_name("wan_client.py")
            environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            self.process = start(
                network.at(site, sys.executable, helper, theirs.fileno()),
                pass_fds=[theirs.fileno()], env=environment,
            )
        self._channel, self._lines = ours, ours.makefile("rw")

    def begin(self, command, limit_s, keeps_events=False):
        """Begins a run: its process, and when it began on the clock of `time.monotonic`."""
        order = {"command": list(map(str, command)), "limit_s": limit_s, "keeps_events": keeps_events}
        self._send({**order, "errors": str(self._errors)})
        return self._receive()

    def has_ended(self, wait_s):
        """Whether the run ends within so many seconds (`None`: however long it takes)."""
        return bool(select.select([self._channel], [], [], wait_s)[0])

    def end(self):
        """What the run that was begun cost, and what it said on standard error."""
        return {**self._receive(), "errors": self._errors.read_text(errors="replace")}

    def wait_for(self, server, host, port):
        """Until it listens; what is wrong if it does not in time."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            self._send({"host": host, "port": port})
            error = self._receive()["error"]
            if error is None:
                return None
            if server.process.poll() is not None or time.monotonic() > deadline:
                return error
            time.sleep(0.05)

    def _send(self, order):
        self._lines.write(json.dumps(order) + "\n")
        self._lines.flush()

    def _receive(self):
        line = self._lines.readline()
        if not line:
            sys.exit("the helper in the client's namespace ended")
        return json.loads(line)


class Server:
    """A server at a site. Its log is for the case that it does not start."""

    def __init__(self, network, site, directory, command, **options):
        self.site, self._log = site, directory / "log"
        self._command, self._options = network.at(site, *command), options
        self.start()

    def start(self):
        with open(self._log, "wb") as log:
            self.process = start(self._command, stdout=log, stderr=subprocess.STDOUT, **self._options)

    def kill(self):
        """As a crash would: at once, with its children."""
        for pid in [self.process.pid, *children(self.process.pid)]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def log(self):
        return self._log.read_text(errors="replace")[-2000:]


class Nginx(Server):
    name, port = "nginx", 443

    def __init__(self, network, site, directory, export, identity):
        directory.mkdir(parents=True)
        conf = directory / "nginx.conf"
        listen = f"listen {self.port} ssl; listen [::]:{self.port} ssl;"
        conf.write_text(nginx_conf(listen, export, identity.certificate, identity.key, "stderr"))
        super().__init__(network, site, directory, ["nginx", "-p", directory, "-c", conf])


class GridlaneServe(Server):
    name, port = "gridlane serve", 8443

    def __init__(self, network, site, directory, export, identity, gridlane, addresses, *more):
        directory.mkdir(parents=True)
        command = [gridlane, "serve", export, "--cert", identity.certificate, "--key", identity.key]
        command += ["--access-log", "off", "--insecure-allow-anonymous", *more]
        for address in addresses:
            host = f"[{address}]" if ":" in address else address
            command += ["--listen", f"{host}:{self.port}"]
        environment = dict(os.environ, XDG_DATA_HOME=str(directory))
        super().__init__(network, site, directory, command, env=environment)


XROOTD_CONF = """\
all.export / {rights}
oss.localroot {root}
all.adminpath {directory}/admin
all.pidpath {directory}/admin
xrd.port {port}
xrd.network nodnr
"""


class XRootD(Server):
    name, port = "xrootd", 1094

    def __init__(self, network, site, directory, export, rights="r/o", more="", files=()):
        """`more` are lines of the configuration, `files` what it needs a copy of: a key has to be its own."""
        (directory / "admin").mkdir(parents=True)
        for file in files:
            shutil.copy(file, directory)
        conf = directory / "xrootd.cfg"
        conf.write_text(XROOTD_CONF.format(root=export, directory=directory, port=self.port, rights=rights) + more)
        # It refuses to run as root. Not with its own option -R: changing user like that would let it outlive us.
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "xrootd:", str(directory)], check=True)
            as_other = ["setpriv", "--reuid=xrootd", "--regid=xrootd", "--clear-groups", "--pdeathsig=TERM", "--"]
        else:
            as_other = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"]
        self._own_log = directory / "admin" / "xrootd.log"
        command = [*as_other, "xrootd", "-c", conf, "-n", site, "-l", self._own_log]
        super().__init__(network, site, directory, command)

    def log(self):
        # It puts the name of its instance before the file's.
        logs = sorted(self._own_log.parent.rglob("xrootd.log"))
        return super().log() + "".join(log.read_text(errors="replace")[-2000:] for log in logs)


class Identity:
    """An authority, and a certificate by it for some hosts: ECDSA P-256."""

    def __init__(self, directory, hosts):
        directory.mkdir()
        self.authority = directory / "authority.pem"
        self.certificate, self.key = directory / "certificate.pem", directory / "key.pem"
        authority_key = directory / "authority-key.pem"
        new = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        ]
        names = "subjectAltName=" + ",".join(f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts)
        _quiet(*new, "-subj", "/CN=bench-wan authority", "-keyout", authority_key, "-out", self.authority)
        _quiet(
            *new, "-CA", self.authority, "-CAkey", authority_key, "-subj", "/CN=bench-wan", "-addext", names,
            "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", self.key, "-out", self.certificate,
        )


def _quiet(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
