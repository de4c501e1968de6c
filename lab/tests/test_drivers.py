"""Drivers: their commands, and what they read in output that real tools have printed (record_tools.py)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tasks
from record_tools import CASES, SIZE

import gridlane_lab.drivers  # noqa: F401
from gridlane_lab import registry, transfers
from gridlane_lab.driver import Availability, Reading
from gridlane_lab.drivers import common
from gridlane_lab.drivers.curl import markers
from gridlane_lab.drivers.gridlane import reading_of_cp
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.scenario import Kind

RECORDED = Path(__file__).with_name("recorded")
CASE = {case.name: case for case in CASES}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands do not depend on what is installed here."""
    monkeypatch.setattr(common.shutil, "which", lambda name, path=None: f"/bin/{name.rpartition('/')[2]}")
    monkeypatch.setenv("GRIDLANE_LAB_BINARY", "gridlane")


def reading(name: str, tmp_path: Path) -> tuple[Reading, dict[str, Any]]:
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    case = CASE[name]
    one = tasks.task(
        case.driver, {"kind": "copy"} | case.work, [f"https://source-{n}/file" for n, _ in enumerate(case.sources)],
        "https://target/file" if "put/" in case.target else "/lab/here", tmp_path, tool=case.tool, size_bytes=SIZE,
    )  # fmt: skip
    return registry.tool(case.driver).read(one, tasks.output(tmp_path, recorded)), recorded


# --- What they read ---------------------------------------------------------------------------------------

_RECORDED = sorted(path.stem for path in RECORDED.glob("*.json"))


def test_every_case_is_recorded():
    assert set(_RECORDED) == set(CASE)


@pytest.mark.parametrize("name", [name for name in _RECORDED if "-missing" in name])
def test_a_missing_file_is_the_source_s_fault(name, tmp_path):
    found, recorded = reading(name, tmp_path)
    assert recorded["exit_code"] != 0
    assert found.error
    assert (found.error_scope, found.error_phase) == ("source", "open")


@pytest.mark.parametrize("name", [name for name in _RECORDED if "-refused" in name or "-unreachable" in name])
def test_a_server_that_is_not_there_is_the_network_s_fault(name, tmp_path):
    found, _ = reading(name, tmp_path)
    assert found.error
    assert found.error_scope == "network"
    assert not found.source_bytes or not any(found.source_bytes.values())


def test_what_a_source_sent_for_nothing_is_told(tmp_path):
    """More received from a source than it gave to the file; never less than nothing."""
    recorded = json.loads((RECORDED / "gridlane-mirrors.json").read_text())
    (summary,) = (event for _, event in recorded["events"] if event["type"] == "summary")
    first, second = summary["sources"]
    first["received_bytes"] += 1000
    second["received_bytes"] = 0
    found = reading_of_cp(tasks.output(tmp_path, recorded))
    assert found.source_wasted_bytes == {first["url"]: 1000, second["url"]: 0}
    assert sum(found.source_bytes.values()) == SIZE


@pytest.mark.parametrize(
    "name", [name for name in _RECORDED if not any(word in name for word in ("missing", "refused", "unreach", "fail"))]
)
def test_a_success_has_no_error_and_its_bytes(name, tmp_path):
    found, recorded = reading(name, tmp_path)
    assert recorded["exit_code"] == 0
    assert (found.error, found.error_scope, found.error_phase) == (None, None, None)
    if CASE[name].work.get("kind") not in ("remote_read", "raw_network"):
        assert found.bytes_moved == SIZE
    for at in (found.first_byte_s, found.last_byte_s, found.verified_s):
        assert at is None or 0 <= at <= recorded["wall_s"] + 0.001
    if found.first_byte_s is not None and found.last_byte_s is not None:
        assert found.first_byte_s <= found.last_byte_s


def test_gridlane_tells_its_sources(tmp_path):
    found, _ = reading("gridlane-mirrors", tmp_path)
    assert found.sources_used in (1, 2) and found.connections == sum(found.source_connections.values()) > 0
    assert set(found.source_connections) == set(found.source_bytes)
    assert sum(found.source_bytes.values()) == SIZE and len(found.source_bytes) == 2
    assert found.checksum_compared is True and found.first_byte_s is not None


def test_curl_has_the_status_and_its_times(tmp_path):
    found, recorded = reading("curl-get", tmp_path)
    assert found.http_status == 200 and 0 < found.first_byte_s < found.last_byte_s <= recorded["wall_s"]
    assert reading("curl-missing", tmp_path)[0].http_status == 404
    assert reading("curl-put", tmp_path)[0].first_byte_s is None


def test_a_copy_that_fails_after_202_is_a_failure(tmp_path):
    found, recorded = reading("curl-copy-unreachable", tmp_path)
    assert recorded["exit_code"] == 0 and found.http_status == 202
    assert "Connection refused" in found.error and found.error_scope == "network"


def test_a_copy_that_is_refused_says_why(tmp_path):
    found, _ = reading("curl-copy-failure", tmp_path)
    assert found.http_status == 404 and "no such file" in found.error


def test_markers_without_a_last_line_are_no_success():
    body = (
        "Perf Marker\n Timestamp: 1\n Stripe Index: 0\n Stripe Bytes Transferred: 10\n Total Stripe Count: 2\n"
        " RemoteConnections: tcp:192.0.2.1:1,tcp:[2001:db8::1]:2\nEnd\n"
        "Perf Marker\n Stripe Index: 1\n Stripe Bytes Transferred: 20\nEnd\n"
    )
    found = markers(body)
    assert (found.count, found.bytes_moved, found.connections_max, found.last) == (2, 30, 2, "")
    assert not found.is_success and not found.is_failure
    assert markers(body + "success: Created\n").is_success
    assert markers(body + "failed: no\n").is_failure


def test_rclone_may_say_what_is_no_object(tmp_path):
    said = {"stdout": "", "stderr": '3\n[1]\n{"stats": {"bytes": 7}}\n', "exit_code": 1, "wall_s": 1, "events": []}
    one = tasks.task("rclone", {}, ["https://a/f"], "/t/f", tmp_path)
    assert registry.tool("rclone").read(one, tasks.output(tmp_path, said)).bytes_moved == 7


def test_reads_are_counted(tmp_path):
    found, _ = reading("pyxrootd-single", tmp_path)
    assert (found.events_read, found.events_requested, found.requests) == (8, 8, 8)
    found, _ = reading("pyxrootd-vector", tmp_path)
    assert (found.events_read, found.requests) == (800, 1)
    found, _ = reading("http-lazy", tmp_path)
    assert found.requests <= 4 and found.bytes_moved == found.requests * 2_000_000
    assert found.reconnects == 0 and found.wait_s > 0


def test_a_read_that_was_cut_off_has_what_it_had(tmp_path):
    recorded = {
        "stdout": "", "stderr": "", "exit_code": 143, "wall_s": 30.0,
        "events": [[1.1, {"type": "progress", "events": 40, "bytes": 40_000, "bytes_moved": 40_000, "requests": 40}],
                   [2.1, {"type": "progress", "events": 80, "bytes": 80_000, "bytes_moved": 80_000, "requests": 80}]],
    }  # fmt: skip
    work = {"kind": "remote_read", "protocol": "root", "read": {"fraction": 0.5, "event_bytes": 1000}}
    one = tasks.task("pyxrootd", work, ["root://a/b"], "", tmp_path)
    found = registry.tool("pyxrootd").read(one, tasks.output(tmp_path, recorded))
    assert (found.events_read, found.events_requested, found.bytes_moved) == (80, 500, 80_000)
    assert found.bytes_verified is None


# --- Commands ---------------------------------------------------------------------------------------------


def argv(driver: str, work: dict[str, Any], sources: list[str], target: str, scratch: Path, **more: Any) -> list[str]:
    return list(registry.tool(driver).command(tasks.task(driver, work, sources, target, scratch, **more)).argv)


def test_commands_of_several_sources(tmp_path):
    two = ["https://a/f", "https://b/f"]
    command = argv("gridlane", {"sources": 2}, two, "/t/f", tmp_path)
    assert command[:4] == ["/bin/gridlane", "cp", "https://a/f", "/t/f"]
    assert command[command.index("--mirror") + 1] == "https://b/f"
    assert "--streams" not in command
    command = argv("aria2c", {"sources": 2, "streams": 4}, two, "/t/f", tmp_path)
    assert command[-2:] == two and {"--max-connection-per-server=4", "--split=8", "--min-split-size=1M"} < set(command)
    assert not [word for word in argv("aria2c", {"sources": 2}, two, "/t/f", tmp_path) if "split" in word]
    command = argv("xrdcp", {"protocol": "root", "sources": 2}, ["root://a:1/f", "root://b:1//f"], "/t/f", tmp_path)
    assert command[command.index("--sources") + 1] == "2"
    text = (tmp_path / "replicas-0.meta4").read_text()
    assert '<url priority="1">root://a:1//f</url><url priority="2">root://b:1//f</url>' in text
    assert "<size>1000000</size>" in text


def test_commands_of_streams(tmp_path):
    work = {"protocol": "root", "streams": 4}
    assert "--streams" in argv("xrdcp", work, ["root://a/f"], "/t", tmp_path)
    command = argv("globus-url-copy", {"protocol": "gsiftp", "streams": 4}, ["ftp://a/f"], "/t", tmp_path)
    assert command[3:5] == ["-p", "4"]
    command = argv("iperf3", {"kind": "raw_network", "streams": 8}, ["tcp://a:5300/"], "", tmp_path)
    assert command[2] == "a" and command[4] == "5300" and command[command.index("--parallel") + 1] == "8"
    # Another server's port is not that of iperf3.
    assert argv("iperf3", {"kind": "raw_network"}, ["https://a:443/f"], "", tmp_path)[4] == "5201"
    command = argv("rclone", {"streams": 4}, ["https://a:1/d/f"], "/t", tmp_path)
    assert command[-3:] == ["copyto", ":http,url='https://a:1/d/':f", "/t"]


def test_commands_of_third_party_copies(tmp_path):
    pull, source, target = {"kind": "tpc_pull"}, ["https://a/f"], "https://b/f"
    assert {"--tpc", "only", "pull"} < set(argv("gridlane", pull, source, target, tmp_path))
    command = argv("curl-copy", pull, source, target, tmp_path)
    assert command[-1] == target and "Source: https://a/f" in command and "X-Number-Of-Streams: 1" not in command
    own = argv("curl-copy", {"streams": 8} | pull, source, target, tmp_path, tool={"options": {"own_streams": True}})
    assert "X-Number-Of-Streams: 0" in own and not any("Streams: 8" in word for word in own)
    command = argv("curl-copy", {"kind": "tpc_push", "streams": 8}, source, target, tmp_path)
    assert command[-1] == source[0] and "Destination: https://b/f" in command and "X-Number-Of-Streams: 8" in command
    assert argv("davix", pull, source, target, tmp_path)[1:3] == ["--copy-mode", "pull"]
    assert "--no-delegation" in argv("gfal-copy", pull, source, target, tmp_path)
    work = {"kind": "tpc_pull", "protocol": "root"}
    assert argv("xrdcp", work, ["root://a/f"], "root://b/f", tmp_path)[-2:] == ["root://a//f", "root://b//f"]


def test_credentials_are_in_files(tmp_path):
    (tmp_path / "token").write_text("SECRET\n")
    for driver in ("gridlane", "aria2c", "curl", "curl-copy", "rclone", "gfal-copy"):
        kind = "tpc_pull" if driver == "curl-copy" else "copy"
        one = tasks.task(driver, {"kind": kind, "auth": "token"}, ["https://a/f"], "https://b/f", tmp_path,
                         credentials={"token": tmp_path / "token"})  # fmt: skip
        command = registry.tool(driver).command(one)
        assert not [word for word in command.argv if "SECRET" in word], driver
    assert "TransferHeaderAuthorization: Bearer SECRET" in (tmp_path / "transfer-authorization-0").read_text()
    assert (tmp_path / "transfer-authorization-0").stat().st_mode & 0o77 == 0


def test_no_token_is_in_what_is_kept_of_a_command(tmp_path):
    (tmp_path / "token").write_text("SECRET\n")
    tried = set()
    for name, driver in registry.tools().items():
        if "token" not in driver.capabilities.auth or name == "uproot" or name.startswith("gridlane-"):
            continue
        kind = next(iter(sorted(driver.capabilities.kinds & {"copy", "tpc_pull", "remote_read"})))
        protocol = "https" if "https" in driver.capabilities.protocols else "root"
        work = {"kind": kind, "protocol": protocol, "auth": "token"} | ({"read": {}} if kind == "remote_read" else {})
        target = f"{protocol}://b/f" if kind == "tpc_pull" else "/t/f"
        one = tasks.task(name, work, [f"{protocol}://a/f"], target, tmp_path,
                         credentials={"token": tmp_path / "token"})  # fmt: skip
        command = driver.command(one)
        attempt = transfers.Attempt(SimpleNamespace(task=one), 0, command)
        text = attempt.command_text()
        assert "SECRET" not in text and text.endswith(shlex.join(command.argv)[-4:]), name
        tried.add(name)
    assert {"davix", "rclone", "gfal-copy", "curl", "curl-copy", "aria2c", "gridlane", "xrdcp"} <= tried


def test_copies_that_are_read_afterwards(tmp_path):
    read = {"fraction": 0.25, "event_bytes": "1kB", "pattern": "random"}
    work = {"kind": "copy_then_read", "read": read, "target_rate_bytes_per_s": 50e6}
    for driver in ("gridlane", "curl", "davix"):
        one = tasks.task(driver, work, ["https://a/f"], "/t/f", tmp_path)
        command = registry.tool(driver).command(one)
        assert command.argv[1].endswith("copy_then_read.py") and command.is_json_lines
        place = command.argv.index("--")
        assert command.argv[place - 1] == "/t/f" and command.argv[place + 1].startswith("/bin/")
        assert {"--disk-bytes-per-s", "50000000", "--fraction=0.25", "--event-bytes=1000"} < set(command.argv)


def test_gfal_has_debian_s_python(tmp_path):
    one = tasks.task("gfal-copy", {}, ["https://a/f"], "/t/f", tmp_path, authority_directory=tmp_path)
    command = registry.tool("gfal-copy").command(one)
    assert command.environment == {"GFAL_PYTHONBIN": "/usr/bin/python3", "X509_CERT_DIR": str(tmp_path)}
    assert command.argv[-2:] == ("https://a/f", "file:///t/f")


def test_page_checksums_of_xrdcp_can_be_turned_off(tmp_path):
    work, tool = {"protocol": "root"}, {"options": {"pages": False}}
    one = tasks.task("xrdcp", work, ["root://a/f"], "/t", tmp_path, tool=tool)
    assert registry.tool("xrdcp").command(one).environment["XRD_CPUSEPGWRTRD"] == "0"


def test_fdt_needs_a_jar(tmp_path, monkeypatch):
    monkeypatch.delenv("GRIDLANE_LAB_FDT_JAR", raising=False)
    assert "GRIDLANE_LAB_FDT_JAR" in registry.tool("fdt").availability().reason
    work = {"protocol": "fdt", "streams": 4}
    with pytest.raises(LabError, match="no jar is named"):
        argv("fdt", work, ["fdt://a/export/f"], "/t/f", tmp_path)
    monkeypatch.setenv("GRIDLANE_LAB_FDT_JAR", str(tmp_path / "fdt.jar"))
    assert "is no file" in registry.tool("fdt").availability().reason
    command = argv("fdt", work, ["fdt://a/export/f"], "/t/f", tmp_path)
    assert command[:2] == ["sh", "-c"] and command[-1] == "/export/f"
    assert command[command.index("-P") + 1] == "4" and command[command.index("-p") + 1] == "54321"


def test_fdt_gives_the_file_its_name(tmp_path):
    """The shell's part, with a program in the place of Java."""
    from gridlane_lab.drivers.fdt import _MOVE

    common.subprocess.run(
        ["/bin/sh", "-c", _MOVE, "fdt", str(tmp_path / "d"), str(tmp_path / "target"), "/bin/sh", "-c",
         'echo bytes > "$0/name"', str(tmp_path / "d")], check=True)  # fmt: skip
    assert (tmp_path / "target").read_text() == "bytes\n" and not (tmp_path / "d").exists()


def test_the_guide_s_example_of_a_tool(tmp_path, monkeypatch):
    """Its code as it stands, with nothing but what it says where the names come from."""
    from gridlane_lab import driver
    from gridlane_lab.drivers import installed

    guide = (Path(__file__).parents[2] / "docs/guides/lab.md").read_text()
    begin = guide.index("    @register_tool\n")
    lines = guide[begin : guide.index("\nand its name in", begin)].splitlines()
    code = "\n".join(line.removeprefix("    ") for line in lines)
    monkeypatch.setattr(registry, "_tools", {})
    names = {**vars(driver), **vars(common), **vars(installed), "register_tool": registry.register_tool}
    exec(compile(code, "lab.md", "exec"), names)
    assert argv("wget", {}, ["https://a/f"], "/t/f", tmp_path) == [
        "/bin/wget", "--quiet", "--tries=1", "--output-document=/t/f", "https://a/f",
    ]  # fmt: skip
    said = {"stdout": "", "stderr": "wget: unable to resolve host\n", "exit_code": 4, "wall_s": 1, "events": []}
    one = tasks.task("wget", {}, ["https://a/f"], "/t/f", tmp_path)
    assert registry.tool("wget").read(one, tasks.output(tmp_path, said)).error == "wget: unable to resolve host"


# --- Mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", sorted(registry.tools()))
def test_unknown_options_are_refused(driver, tmp_path):
    found = registry.tool(driver)
    kinds: list[Kind] = sorted(found.capabilities.kinds)
    read = {"fraction": 0.1} if kinds[0] in ("remote_read", "copy_then_read") else None
    protocol = sorted(found.capabilities.protocols)[0]
    one = tasks.task(driver, {"kind": kinds[0], "protocol": protocol, "read": read}, ["x://a/f"], "/t", tmp_path,
                     tool={"options": {"nonsense": 1}})  # fmt: skip
    with pytest.raises(LabError) as caught:
        found.command(one)
    declared = not found.availability().is_there and driver.startswith("gridlane-")
    assert caught.value.code == (ExitCode.UNSUPPORTED if declared else ExitCode.USAGE)


def test_options_have_types(tmp_path):
    with pytest.raises(LabError, match="takes a int, not 'many'"):
        argv("aria2c", {}, ["https://a/f"], "/t", tmp_path, tool={"options": {"split": "many"}})


def test_one_source_is_one(tmp_path):
    for driver in ("curl", "davix", "gfal-copy", "rclone"):
        with pytest.raises(LabError, match="takes one source, not 2"):
            argv(driver, {}, ["https://a/f", "https://b/f"], "/t", tmp_path)


def test_unknown_traces_are_refused(tmp_path):
    for trace, message in (("nothing", "there is no trace 'nothing'"), (None, "needs .work.read. trace")):
        work = {"kind": "remote_read", "protocol": "root", "read": {"pattern": "trace", "trace": trace}}
        with pytest.raises(LabError, match=message):
            argv("pyxrootd", work, ["root://a/f"], "", tmp_path)


def test_a_tool_that_is_missing_names_its_package(monkeypatch):
    monkeypatch.setattr(common.shutil, "which", lambda name, path=None: None)
    monkeypatch.delenv("GRIDLANE_LAB_BINARY")
    packages = {
        "aria2c": "aria2", "curl": "curl", "davix": "davix", "gfal-copy": "gfal2-util-scripts", "iperf3": "iperf3",
        "globus-url-copy": "globus-gass-copy-progs", "rclone": "rclone", "xrdcp": "xrootd-client",
    }  # fmt: skip
    for driver, package in packages.items():
        found = registry.tool(driver).availability()
        assert found == Availability(None, None, reason=found.reason)
        assert found.reason.endswith(f"apt-get install {package}"), driver
    assert "make build" in registry.tool("gridlane").availability().reason


def test_what_is_only_declared_is_not_available():
    for name in ("gridlane-broker", "gridlane-federation", "gridlane-cache"):
        found = registry.tool(name).availability()
        assert not found.is_there and "yet" in found.reason


def test_causes():
    assert common.cause("curl: (28) Operation timed out after 1000 ms") == ("network", "transfer")
    assert common.cause("write error: No space left on device") == ("destination", "write")
    assert common.cause("HTTP 403 : Permission refused") == ("source", "authorise")
    assert common.cause("something else") == (None, None)
    assert common.message("a\r50%\rfatal error: b\nbye\n") == "fatal error: b"
    assert common.message("") is None
