"""The agent that runs commands: times, limits, rates, groups, and its end with the program that holds it."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gridlane_lab import agent as agent_program
from gridlane_lab import processes
from gridlane_lab.agents import AgentError, RemoteAgent


@pytest.fixture
def agent(tmp_path):
    found = RemoteAgent(list, directory=tmp_path)
    yield found
    found.close()


def run(agent, tmp_path, *command, limit_s=20.0, environment=None, **more):
    order = agent.order(
        "run",
        command=list(command),
        environment={"PATH": os.environ["PATH"]} | (environment or {}),
        limit_s=limit_s,
        stdout=str(tmp_path / "stdout"),
        stderr=str(tmp_path / "stderr"),
        **more,
    )
    return agent.end_of(order, 60)


def test_a_command_has_its_time_cpu_output_and_a_clean_environment(agent, tmp_path):
    code = "import os, sys; print(sorted(os.environ)); sys.stderr.write('oh'); sum(range(10**6)); sys.exit(3)"
    ended = run(agent, tmp_path, sys.executable, "-I", "-S", "-c", code, environment={"ONE": "1"})
    assert ended["code"] == 3 and not ended["cut_off"]
    assert ended["closed_ns"] > ended["started_ns"] and ended["cpu_s"] > 0
    assert "HOME" not in (tmp_path / "stdout").read_text() and "ONE" in (tmp_path / "stdout").read_text()
    assert (tmp_path / "stderr").read_text() == "oh"


def test_json_lines_keep_their_time(agent, tmp_path):
    ended = run(
        agent, tmp_path, "sh", "-c", "echo '{\"a\": 1}'; sleep 0.2; echo no; echo '{\"a\": 2}'", json_lines=True
    )
    (first, one), (second, other) = ended["events"]
    assert (one, other) == ('{"a": 1}\n', '{"a": 2}\n') and second - first > 0.15
    assert (tmp_path / "stdout").read_text() == '{"a": 1}\nno\n{"a": 2}\n'


def test_lines_without_end_are_no_events(tmp_path):
    reading, writing = os.pipe()
    said = b'{"a": 1}\n{"long": "' + b"x" * 100_000 + b'"}\n{"type": "summary"}\n{"no end": '
    writer = threading.Thread(target=lambda: (os.write(writing, said), os.close(writing)))
    writer.start()
    events = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_program, "EVENT_BYTES_MAX", 1000)
        agent_program._read_lines(reading, str(tmp_path / "all"), events)
    writer.join()
    assert [line for _, line in events] == ['{"a": 1}\n', '{"type": "summary"}\n', '{"no end": ']
    assert (tmp_path / "all").read_bytes() == said


def test_events_are_no_more_than_their_room(tmp_path):
    file = tmp_path / "said"
    file.write_bytes(b'{"type": "progress"}\n' * 100 + b'{"type": "summary"}\n' * 100)
    events = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_program, "EVENTS_BYTES_MAX", 1000)
        agent_program._read_lines(os.open(file, os.O_RDONLY), str(tmp_path / "all"), events)
    kept = [line for _, line in events]
    assert 400 < sum(len(line) for line in kept if "progress" in line) <= 500
    assert 900 < sum(map(len, kept)) <= 1000
    assert (tmp_path / "all").read_bytes() == file.read_bytes()


def test_a_limit_ends_a_command_with_what_it_has_started(agent, tmp_path):
    ended = run(agent, tmp_path, "sh", "-c", f"sleep 987 & echo $! >{tmp_path}/child; sleep 987", limit_s=0.4)
    assert ended["cut_off"] and ended["code"] < 0
    child = int((tmp_path / "child").read_text())
    limit = time.monotonic() + 10
    while processes.start_ticks(child) is not None and time.monotonic() < limit:
        time.sleep(0.02)
    assert processes.start_ticks(child) is None


def test_a_command_that_is_not_there(agent, tmp_path):
    assert "No such file" in run(agent, tmp_path, "/no/such/program")["error"]


def test_a_slow_disk_takes_its_time(agent, tmp_path):
    ended = run(agent, tmp_path, "head", "-c", "1000000", "/dev/zero", rate_bytes_per_s=2e6)
    assert (ended["closed_ns"] - ended["started_ns"]) / 1e9 >= 0.5


def test_the_first_write_is_seen(agent, tmp_path):
    (tmp_path / "target").mkdir()
    script = f"sleep 0.3; head -c 5000 /dev/zero > {tmp_path}/target/file; sleep 0.1"
    ended = run(agent, tmp_path, "sh", "-c", script, watch=str(tmp_path / "target"))
    assert 0.25e9 < ended["first_byte_ns"] - ended["started_ns"] < ended["closed_ns"] - ended["started_ns"]
    assert run(agent, tmp_path, "true", watch=str(tmp_path / "target"))["first_byte_ns"] is None


def test_many_at_once(agent, tmp_path):
    def begin(number):
        return agent.order(
            "run", command=["sleep", "0.5"], environment={"PATH": os.environ["PATH"]}, limit_s=10,
            stdout=os.devnull, stderr=str(tmp_path / str(number)),
        )  # fmt: skip

    began = time.monotonic()
    ended = [agent.end_of(order) for order in [begin(number) for number in range(20)]]
    assert all(answer["code"] == 0 for answer in ended) and time.monotonic() - began < 8
    assert max(answer["started_ns"] for answer in ended) < min(answer["closed_ns"] for answer in ended)


# Usual packets, and large ones of which fewer go at once.
@pytest.mark.parametrize(("payload_bytes", "packets_per_s"), [(1472, 5000), (8972, 14_000)])
def test_packets_come_back_and_are_counted(agent, payload_bytes, packets_per_s):
    echo = agent.order("echo", host="127.0.0.1", count=5, wait_s=2)
    port = agent.begin_of(echo)["port"]
    found = agent.ask("ping", host="127.0.0.1", port=port, count=5, every_s=0.002, wait_s=2)
    assert len(found["round_trips_s"]) == 5 and found["lost"] == 0 and agent.end_of(echo)["packets"] == 5
    sink = agent.order("sink", host="127.0.0.1", payload_bytes=payload_bytes, wait_s=0.3)
    port = agent.begin_of(sink)["port"]
    sent = agent.ask(
        "flood", host="127.0.0.1", port=port, payload_bytes=payload_bytes, packets_per_s=packets_per_s, duration_s=0.3
    )
    received = agent.end_of(sink)
    assert 0 < received["packets"] <= sent["packets"] and received["packets_per_s"] > 0


def test_an_agent_ends_with_its_holder_and_its_commands_with_it(tmp_path):
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(processes.__file__).parents[1])!r})
from gridlane_lab.agents import RemoteAgent
agent = RemoteAgent(list)
order = agent.order("run", command=["sleep", "986"], environment={{"PATH": "/bin:/usr/bin"}}, limit_s=900,
                    stdout="/dev/null", stderr="/dev/null")
print(agent.process.pid, agent.begin_of(order)["pid"], flush=True)
time.sleep(900)
"""
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in holder.stdout.readline().split()]
    assert all(processes.start_ticks(pid) for pid in pids)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    limit = time.monotonic() + 20
    while any(_runs(pid) for pid in pids) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_an_agent_that_is_gone_is_an_error(tmp_path):
    agent = RemoteAgent(list)
    agent.process.kill()
    agent.process.wait()
    with pytest.raises(AgentError):
        agent.ask("connect", host="127.0.0.1", port=1)
    agent.close()


def test_cpu_of_all_below_counts_those_that_have_ended():
    work = f"{sys.executable} -S -c 'sum(range(3*10**7))'; sleep 987; true"
    process = processes.start(["sh", "-c", work])
    limit = time.monotonic() + 60
    while processes.cpu_of_all_s(process.pid) < 0.2 or not _ended_child(process.pid):
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert processes.cpu_of_all_s(process.pid) > 0.2 and processes.peak_memory_bytes(process.pid) > 100_000
    below = [pid for pid, _ in processes.descendants(process.pid)]
    processes.end(process)
    assert process.poll() is not None
    while any(_runs(pid) for pid in below):
        assert time.monotonic() < limit
        time.sleep(0.02)
    processes.end(process)


def _ended_child(pid):
    """Whether the second command runs, so that the first one has ended and has been waited for."""
    for child in processes.children(pid):
        with contextlib.suppress(OSError):
            if b"987" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return True
    return False
