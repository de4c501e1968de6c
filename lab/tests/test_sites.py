"""Networks from topologies, what a killed run has left, rights and room."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from laboratory import last_record, load

from gridlane_lab import credentials, data, sites, space
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.identity import Identity
from gridlane_lab.scenario import Event, Host, Topology
from gridlane_lab.workspace import Workspace, sweep

TOPOLOGY = Topology.model_validate(
    {
        "site": [{"name": "left", "count": 2}, {"name": "right"}],
        "routers": ["middle"],
        "mtu_bytes": 9000,
        "link": [
            {
                "between": ["left", "middle"],
                "rate_bits_per_s": "1Gb/s",
                "round_trip_ms": 10,
                "loss_ratio": 1e-5,
                "queue": 200_000,
                "sending": {"left": {"rate_bits_per_s": 1e8}},
            },
            {"between": ["middle", "right"], "delay_ms": 0.25, "jitter_ms": 0.1},
        ],
    }
)


def test_the_emulators_scenario():
    found = tomllib.loads(sites.wan_scenario(TOPOLOGY, Host(congestion_control="cubic", buffers="host"), 7))
    assert found["sites"] == ["left-1", "left-2", "right"] and found["routers"] == ["middle", "left"]
    assert (found["seed"], found["mtu"], found["congestion_control"], found["buffers"]) == (7, 9000, "cubic", "host")
    first, second, *inner = found["link"]
    assert first == {
        "between": ["left", "middle"], "name": "left-middle", "rate": "1000000000b/s", "delay_ms": 5.0,
        "jitter_ms": 0.0, "loss": 1e-5, "queue": "200000B", "from": {"left": {"rate": "100000000b/s"}},
    }  # fmt: skip
    assert (second["delay_ms"], second["jitter_ms"], second["queue"]) == (0.25, 0.1, "bdp") and "rate" not in second
    assert inner == [{"between": ["left", "left-1"]}, {"between": ["left", "left-2"]}]


def test_gridlane_takes_it(tmp_path, gridlane):
    path = tmp_path / "network.toml"
    path.write_text(sites.wan_scenario(TOPOLOGY, Host(), 1))
    done = subprocess.run([gridlane, "wan", "up", "--dry-run", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_figure_that_no_end_has():
    link = TOPOLOGY.link[0].model_copy(update={"sending": {"left": {"colour": 3}}})
    with pytest.raises(LabError, match="colour"):
        sites.wan_scenario(TOPOLOGY.model_copy(update={"link": [link]}), Host(), 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"at_s": 1},
        {"at_s": 1, "link": "a", "site": "b"},
        {"at_s": 1, "site": "b"},
        {"at_s": 1, "link": "a", "server": "kill"},
    ],
)
def test_events_are_of_one_kind(wrong):
    with pytest.raises(ValueError, match="event"):
        Event.model_validate(wrong)


def test_an_event_at_a_site_that_is_not_there():
    with pytest.raises(ValueError, match="no site"):
        Topology.model_validate({"site": [{"name": "a"}], "event": [{"at_s": 1, "site": "b", "server": "kill"}]})


def test_what_a_killed_run_has_left_is_removed(tmp_path, own_state):
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(sites.__file__).parents[1])!r})
from pathlib import Path
from gridlane_lab import processes
from gridlane_lab.workspace import Workspace
workspace = Workspace(Path({str(tmp_path)!r}))
workspace.__enter__()
(workspace.memory / "file").write_text("left")
import subprocess
other = subprocess.Popen(["sleep", "985"], start_new_session=True)
workspace.add_process(other.pid)
workspace.add_network("false", "some-network")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    [path] = own_state.glob("lab-*.json")
    kept = last_record(path)
    with path.open("a") as file:
        file.write('{"process": 1, "networks": [["gridla')
    [(pid, _)] = kept["processes"]
    assert all(os.path.isdir(directory) for directory in kept["directories"]) and os.path.exists(f"/proc/{pid}")
    with Workspace(tmp_path) as workspace:
        assert not path.exists() and not any(os.path.exists(directory) for directory in kept["directories"])
        assert sweep(own_state) == []
        # Its own is kept as long as it lives.
        assert workspace.memory.is_dir()
        with pytest.raises(LabError, match="measure each other") as refused:
            Workspace(tmp_path).__enter__()
        assert refused.value.code is ExitCode.BUSY
    assert not workspace.memory.exists() and not list(own_state.glob("lab-*.json"))
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_directory_that_cannot_be_made(tmp_path, own_state):
    with pytest.raises(LabError, match="no directory") as refused:
        Workspace(tmp_path / "nowhere").__enter__()
    assert refused.value.code is ExitCode.NO_SPACE and not list(own_state.glob("lab-*.json"))


def test_missing_rights_are_told(monkeypatch, tmp_path):
    scenario = load(tmp_path / "s.toml", SCENARIO)
    monkeypatch.setattr(sites.os, "access", lambda path, mode: path != "/dev/net/tun")
    with pytest.raises(LabError, match="/dev/net/tun") as refused:
        sites.check_rights(scenario)
    assert refused.value.code is ExitCode.DENIED and "loopback" in refused.value.hint
    monkeypatch.setattr(sites.processes, "find", lambda program: None)
    with pytest.raises(LabError, match="iproute2"):
        sites.check_rights(scenario)


SCENARIO = """\
schema = 1
name = "room"
question = "How much room?"
[topology]
site = [{ name = "near" }, { name = "client" }]
[data]
file = [{ name = "one", size_bytes = "10MB", count = 3 }]
[[tool]]
name = "fetch"
driver = "fake-fetch"
[work]
kind = "copy"
file = "one"
source_sites = ["near"]
concurrency = 2
clients = 2
direction = "both"
"""


def test_room_for_targets(tmp_path):
    scenario = load(tmp_path / "s.toml", SCENARIO)
    assert space.transfers_of(scenario) == 12
    assert space.target_needs(scenario) == space.Needs(120_000_000, 0)
    work = scenario.work.model_copy(update={"target": "disk", "direction": "one"})
    assert space.target_needs(scenario.model_copy(update={"work": work})) == space.Needs(0, 60_000_000)
    work = scenario.work.model_copy(update={"target": "null"})
    assert space.target_needs(scenario.model_copy(update={"work": work})) == space.Needs(0, 0)


def test_identities_are_believed(tmp_path):
    identity = Identity(tmp_path / "identity", ["near", "127.0.0.1", "2001:2::2"])
    verify = ["openssl", "verify", "-CAfile", identity.authority, "-verify_ip", "2001:2::2", identity.certificate]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    by_hash = ["openssl", "verify", "-CApath", identity.authority_directory, "-verify_hostname", "near"]
    assert subprocess.run([*by_hash, identity.certificate], capture_output=True, check=False).returncode == 0
    assert identity.key.stat().st_mode & 0o77 == 0


def test_crc32c():
    # Of RFC 3720, B.4, and in pieces.
    for content, digits in ((bytes(32), "8a9136aa"), (b"\xff" * 32, "62a8ab43"), (b"123456789", "e3069283")):
        path = Path("/dev/null")
        found = data._Digest.of("crc32c")
        found.update(content)
        assert found.hexdigest() == digits, path
    whole, pieces = data._Digest.of("crc32c"), data._Digest.of("crc32c")
    content = os.urandom(300_001)
    whole.update(content)
    for at in range(0, len(content), 70_000):
        pieces.update(content[at : at + 70_000])
    assert whole.hexdigest() == pieces.hexdigest()


def test_credentials_are_those_of_the_user(tmp_path, monkeypatch):
    endpoints = SCENARIO.replace("[topology]", "[ignored]").partition("[ignored]")
    text = endpoints[0] + SCENARIO[SCENARIO.index("[data]") :]
    text = text.replace('source_sites = ["near"]', 'source_sites = ["near"]\nauth = "token"\nprotocol = "https"')
    scenario = load(tmp_path / "s.toml", text + '\n[[endpoint]]\nname = "near"\nurls = ["https://near.invalid/"]\n')
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "nowhere"))
    assert "BEARER_TOKEN_FILE" in credentials.missing(scenario) and credentials.find(scenario) == {}
    token = tmp_path / f"bt_u{os.getuid()}"
    token.write_text("secret")
    assert credentials.find(scenario) == {"token": token} and not credentials.missing(scenario)
    emulated = load(tmp_path / "e.toml", SCENARIO.replace("[work]", '[work]\nauth = "proxy"'))
    # There the lab makes them.
    assert credentials.find(emulated) == {} and not credentials.missing(emulated)
