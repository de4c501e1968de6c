"""Credentials at emulated sites: who is let in, what happens when one ends in the middle, and that none is kept."""

import dataclasses
import json
import subprocess
import time

import pytest
import tasks
from laboratory import Lab, leftovers
from test_servers import CONTENT, offered, start  # noqa: F401

from gridlane_lab import credentials, matrix, record, registry, report, scenario
from gridlane_lab.credentials import Term
from gridlane_lab.drivers import common
from gridlane_lab.drivers.gridlane import reading_of_cp
from gridlane_lab.errors import LabError
from gridlane_lab.identity import Identity, User
from gridlane_lab.record import Status
from gridlane_lab.scenario import Work


def work(**values):
    return Work.model_validate({"kind": "copy", "file": "small", "auth": "proxy"} | values)


def test_which_credential_a_run_has_when():
    assert credentials.terms(work(auth="none")) == []
    [one] = credentials.terms(work(duration_s=100))
    assert one.begin_s == 0 and one.end_s > 100 + 3600
    assert credentials.terms(work(duration_s=7, credential_lifetime_s=3, credential_renewed=False)) == [Term(0, 3)]
    renewed = credentials.terms(work(duration_s=7, credential_lifetime_s=3))
    assert renewed == [Term(at, at + 3) for at in range(7)]
    # A lifetime beyond the run needs no other one.
    assert credentials.terms(work(duration_s=7, credential_lifetime_s=30)) == [Term(0, 30)]


@pytest.mark.parametrize(
    ("values", "expires"),
    [
        ({"credential_renewed": False}, True),
        ({}, False),
        ({"credential_renewed": False, "auth": "none"}, False),
        ({"credential_renewed": False, "credential_lifetime_s": 10}, False),
        ({"credential_renewed": False, "credential_lifetime_s": 0}, False),
    ],
)
def test_whose_transfers_have_to_fail(values, expires):
    assert work(**({"duration_s": 10, "credential_lifetime_s": 3} | values)).expires() is expires


def test_proxies_are_believed_as_long_as_they_last(tmp_path):
    identity = Identity(tmp_path / "identity", ["near"])
    user = User(identity, tmp_path / "user")
    proxy = tmp_path / "proxy"
    verify = ["openssl", "verify", "-allow_proxy_certs", "-CAfile", identity.authority, "-untrusted", proxy, proxy]
    for seconds, is_good in ((600, True), (-2, False)):
        user.write_proxy(proxy, int(time.time()) + seconds)
        assert (subprocess.run(verify, capture_output=True, check=False).returncode == 0) is is_good
    assert proxy.stat().st_mode & 0o77 == 0 and not list(tmp_path.glob(".proxy*"))


def proxied(offered, tmp_path):  # noqa: F811
    """What is offered to those who have a proxy, and who that is."""
    identity = Identity(tmp_path / "identity", ["localhost", "127.0.0.1"])
    user = User(identity, tmp_path / "user")
    changes = {
        "certificate": identity.certificate,
        "key": identity.key,
        "authority_file": identity.authority,
        "authority_directory": identity.authority_directory,
        "auth": "proxy",
        "user": user.subject,
    }
    return dataclasses.replace(offered, **changes), user


@pytest.mark.parametrize(
    ("name", "protocol", "driver"), [("gridlane", "https", "curl"), ("gridftp", "gsiftp", "globus-url-copy")]
)
def test_who_has_a_proxy_is_let_in_and_nobody_else(name, protocol, driver, offered, tmp_path):  # noqa: F811
    export, user = proxied(offered, tmp_path)
    assert "proxy" in registry.server(name).auth
    server = start(name, export)
    proxy, local = tmp_path / "proxy", tmp_path / "local"
    try:
        for seconds, is_let_in in ((600, True), (-2, False), (None, False)):
            given = {}
            if seconds is not None:
                user.write_proxy(proxy, int(time.time()) + seconds)
                given = {"proxy": proxy}
            local.unlink(missing_ok=True)
            one = tasks.task(
                driver, {"protocol": protocol, "auth": "proxy"}, [f"{server.urls[protocol]}file"], str(local), tmp_path,
                size_bytes=len(CONTENT), authority_file=export.authority_file,
                authority_directory=export.authority_directory, credentials=given,
            )  # fmt: skip
            command = registry.tool(driver).command(one)
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **command.environment}
            done = subprocess.run(command.argv, env=environment, capture_output=True, text=True, check=False)
            assert (done.returncode == 0) is is_let_in, (seconds, done.stdout, done.stderr, server.log_tail())
            assert (local.exists() and local.read_bytes() == CONTENT) is is_let_in
    finally:
        server.stop()


def test_what_servers_ask_for():
    def refusal(server, **values):
        return registry.server(server).refusal(work(**({"protocol": "https"} | values)))

    assert refusal("nginx") == "asks for no proxy" and refusal("gridlane", auth="token") == "asks for no token"
    assert refusal("nginx", auth="none") == refusal("gridlane") == refusal("gridftp", protocol="gsiftp") == ""
    assert refusal("gridlane", kind="tpc_pull") == "asks for no proxy in tpc_pull over https"
    assert refusal("gridlane", protocol="http") == "asks for no proxy in copy over http"
    assert refusal("gridftp", protocol="root") == "does not speak root"
    assert refusal("nginx", kind="tpc_pull") == "takes no part in tpc_pull"


GLOBUS_EXPIRED = """
error: globus_ftp_control: gss_init_sec_context failed
globus_gsi_gssapi: Error with gss credential handle
globus_credential: Error with credential: The proxy credential: /tmp/proxy
      with subject: /CN=gridlane-lab user/CN=1
      expired 0 minutes ago.

"""


def test_an_expired_proxy_is_the_clients_fault(tmp_path):
    said = {"stdout": "", "stderr": GLOBUS_EXPIRED, "exit_code": 1, "wall_s": 0.1, "events": []}
    one = tasks.task("globus-url-copy", {"protocol": "gsiftp"}, ["gsiftp://near/f"], "/here", tmp_path)
    found = registry.tool("globus-url-copy").read(one, tasks.output(tmp_path, said))
    assert (found.error_scope, found.error_phase) == ("client", "authorise") and "expired 0 minutes" in found.error
    for status, scope in ((None, "client"), (403, "source")):
        error = {"class": "denied", "fault": "caller", "http_status": status, "message": "it expired"}
        said["events"] = [[0.1, {"type": "file.failed", "error": error}]]
        found = reading_of_cp(tasks.output(tmp_path, said))
        assert (found.error_scope, found.error_phase, found.http_status) == (scope, "authorise", status)
    # XRootD's word for a time that is over.
    assert common.cause("[ERROR] Operation expired") == ("network", "transfer")


EXPIRING = """
schema = 1
name = "expiring"
question = "What does a proxy that expires cost?"

[topology]
backend = "loopback"
site = [{ name = "near" }, { name = "client", role = "client" }]

[data]
file = [{ name = "small", size_bytes = "300kB" }]

[[server]]
name = "gridlane"
driver = "gridlane"

[[server]]
name = "gridftp"
driver = "gridftp"

[[server]]
name = "nginx"
driver = "nginx"

[[tool]]
name = "gridlane"
driver = "gridlane"

[[tool]]
name = "globus-url-copy"
driver = "globus-url-copy"

[work]
kind = "copy"
file = "small"
source_sites = ["near"]
duration_s = 4
auth = "proxy"
credential_lifetime_s = 2
pause_after_failure_s = 0.3

[matrix]
blocks = 1
only = [
    { tool = "gridlane", protocol = "https", server = "gridlane" },
    { tool = "gridlane", protocol = "https", server = "nginx", credential_renewed = true },
    { tool = "globus-url-copy", protocol = "gsiftp", server = "gridftp" },
]

[matrix.factors]
protocol = ["https", "gsiftp"]
server = ["gridlane", "gridftp", "nginx"]
credential_renewed = [true, false]
"""


def test_a_proxy_that_expires_in_mid_run(tmp_path, gridlane, own_state, monkeypatch):
    secrets = set()
    write = User.write_proxy

    def remembered(user, path, end_unix_s):
        write(user, path, end_unix_s)
        secrets.update(line for line in path.read_text().splitlines() if len(line) == 64)

    monkeypatch.setattr(User, "write_proxy", remembered)
    lab = Lab(tmp_path, EXPIRING, gridlane)
    lab.run()
    for server, tool in (("gridlane", "gridlane"), ("gridftp", "globus-url-copy")):
        [renewed] = lab.runs(server=server, tool=tool, credential_renewed=True)
        [expired] = lab.runs(server=server, tool=tool, credential_renewed=False)
        assert renewed.status is Status.OK, renewed.reason
        assert expired.status is Status.FAILED and "transfers: " in expired.reason
        rows = sorted(lab.transfers(expired), key=lambda row: row.number)
        good = [row.status is Status.OK for row in rows]
        # Good ones first, then none any more.
        assert good == sorted(good, reverse=True) and 0 < sum(good) < len(good), good
        bad = [row for row in rows if row.status is not Status.OK]
        assert {row.status for row in bad} == {Status.FAILED} and len(bad) > 1
        # In the very second client and server differ, and a connection may break.
        assert all(row.error_phase == "authorise" and "expired" in row.error for row in bad[1:]), bad
        # From the end of the proxy to that of the run, one every 0.3 s.
        assert len(bad) <= 4 / 0.3 + 1
        # With the next proxy it goes on after the end of the first one, which is known to the second.
        spans = []
        for run in (renewed, expired):
            begun = [row.started_ns / 1e9 for row in lab.transfers(run) if row.status is Status.OK]
            spans.append(max(begun) - min(begun))
        assert spans[0] > 3 > spans[1], spans
        happened = (lab.directory.path / expired.raw / "events.jsonl").read_text()
        [ended] = [
            event for line in happened.splitlines() if (event := json.loads(line)).get("credential") == "expired"
        ]
        # Proxies end at whole seconds; the last one that was good began before.
        assert ended["began_s"] + 0.5 >= 2 and spans[1] < ended["began_s"] + 0.1 < 3.6, (spans, ended)
    [none] = lab.runs(server="nginx")
    assert none.status is Status.NOT_AVAILABLE and none.reason == "the server nginx asks for no proxy"
    # Whatever is kept has no part of a key in it.
    report.write(lab.directory.path)
    kept = {path: path.read_bytes() for path in lab.directory.path.rglob("*") if path.is_file()}
    assert len(secrets) > 20 and any(b"credential_renewed" in content for content in kept.values())
    assert not [path for path, content in kept.items() for secret in secrets if secret.encode() in content]
    # Tables are compressed.
    texts = [str(frame.to_dicts()) for frame in record.read_results(lab.directory.path).tables.values()]
    assert any("credential_renewed" in text for text in texts)
    assert not [secret for text in texts for secret in secrets if secret in text]
    assert not leftovers(own_state)


def test_a_lifetime_needs_a_duration(tmp_path):
    (tmp_path / "s.toml").write_text(EXPIRING.replace("duration_s = 4\n", ""))
    with pytest.raises(LabError, match="follow one another for a time"):
        matrix.expand(scenario.load(tmp_path / "s.toml", "smoke"), registry.capabilities())
