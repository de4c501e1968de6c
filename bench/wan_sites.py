"""The emulated network of a benchmark, the servers at its sites, and the client's namespace: as the lab has them."""

import os
import shutil
import subprocess
import sys
import time

from running import start

from gridlane_lab import agents, processes, serving
from gridlane_lab.identity import Identity, IdentityError
from gridlane_lab.network import Network as EmulatedNetwork
from gridlane_lab.network import NetworkError

__all__ = ["Client", "GridlaneServe", "Identity", "IdentityError", "Network", "Nginx", "Server", "XRootD"]

# How long a network or a server may take to begin.
_DEADLINE_S = 20


class Network(EmulatedNetwork):
    """A network that is up as long as this program runs, whatever ends it."""

    def __init__(self, gridlane, name, scenario):
        try:
            super().__init__(gridlane, name, scenario)
        except NetworkError as error:
            sys.exit(str(error))


class Client:
    """Runs clients in a site's namespace."""

    def __init__(self, network, site, errors):
        self._errors = errors
        self._agent = agents.RemoteAgent(lambda argv: network.at(site, *argv), site)
        self.process = self._agent.process

    def begin(self, command, limit_s, keeps_events=False):
        """Begins a run: its process, and when it began on the clock of `time.monotonic`."""
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self._order = self._agent.order(
            "run", command=list(map(str, command)), environment=environment, limit_s=limit_s,
            stdout=os.devnull, stderr=str(self._errors), json_lines=keeps_events,
        )
        begun = self._agent.begin_of(self._order)
        return {"pid": begun["pid"], "began": begun["started_ns"] / 1e9}

    def has_ended(self, wait_s):
        """Whether the run ends within so many seconds (`None`: however long it takes)."""
        limit = None if wait_s is None else time.monotonic() + wait_s
        while self._order.ended is None:
            left = None if limit is None else max(0.0, limit - time.monotonic())
            agents.pump_any([self._agent], left)
            if limit is not None and time.monotonic() >= limit:
                break
        return self._order.ended is not None

    def end(self):
        """What the run that was begun cost, and what it said on standard error."""
        self.has_ended(None)
        ended = self._order.ended
        return {
            "seconds": (ended["closed_ns"] - ended["started_ns"]) / 1e9,
            "cpu_s": ended["cpu_s"],
            "memory_bytes": ended["memory_bytes"] or 0,
            "code": ended["code"],
            "timed_out": ended["cut_off"],
            "events": ended["events"],
            "errors": self._errors.read_text(errors="replace"),
        }

    def wait_for(self, server, host, port):
        """Until it listens; what is wrong if it does not in time."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            error = self._agent.ask("connect", host=host, port=port)["error"]
            if error is None:
                return None
            if server.process.poll() is not None or time.monotonic() > deadline:
                return error
            time.sleep(0.05)


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
        processes.kill(self.process)

    def log(self):
        return self._log.read_text(errors="replace")[-2000:]


class Nginx(Server):
    name, port = "nginx", 443

    def __init__(self, network, site, directory, export, identity):
        directory.mkdir(parents=True)
        conf = directory / "nginx.conf"
        listen = f"listen {self.port} ssl; listen [::]:{self.port} ssl;"
        conf.write_text(serving.nginx_conf(listen, export, identity.certificate, identity.key, "stderr"))
        super().__init__(network, site, directory, ["nginx", "-p", directory, "-c", conf])


class GridlaneServe(Server):
    name, port = "gridlane serve", 8443

    def __init__(self, network, site, directory, export, identity, gridlane, addresses, *more):
        directory.mkdir(parents=True)
        listen = [serving.with_port(address, self.port) for address in addresses]
        options = ["--insecure-allow-anonymous", *more]
        command = serving.gridlane_serve(gridlane, export, listen, identity.certificate, identity.key, options)
        environment = dict(os.environ, XDG_DATA_HOME=str(directory))
        super().__init__(network, site, directory, command, env=environment)


class XRootD(Server):
    name, port = "xrootd", 1094

    def __init__(self, network, site, directory, export, rights="r/o", more=None, files=()):
        """`more` of what `serving.xrootd_conf` takes, `files` what it needs a copy of: a key has to be its own."""
        (directory / "admin").mkdir(parents=True)
        for file in files:
            shutil.copy(file, directory)
        conf = directory / "xrootd.cfg"
        conf.write_text(serving.xrootd_conf(directory, export, self.port, rights=rights, **(more or {})))
        serving.give_to("xrootd", directory)
        self._own_log = directory / "admin" / "xrootd.log"
        command = [*serving.as_user("xrootd"), "xrootd", "-c", conf, "-n", site, "-l", self._own_log]
        super().__init__(network, site, directory, command)

    def log(self):
        # It puts the name of its instance before the file's.
        logs = sorted(self._own_log.parent.rglob("xrootd.log"))
        return super().log() + "".join(log.read_text(errors="replace")[-2000:] for log in logs)
