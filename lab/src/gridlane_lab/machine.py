"""The machine that a run happens on, and what of it figures depend on."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridlane_lab import record
from gridlane_lab.driver import Availability
from gridlane_lab.sites import Sites

# Settings that decide how fast TCP is, those of memory and of the scheduler.
SETTINGS = (
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_mtu_probing",
)
HOST_SETTINGS = (
    *SETTINGS,
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
    "net/ipv4/tcp_available_congestion_control",
    "vm/swappiness",
    "vm/dirty_ratio",
    "kernel/sched_rt_runtime_us",
)


def environment(
    experiment_id: str, environment_id: str, sites: Sites | None, programs: Mapping[str, Availability]
) -> record.Environment:
    """The row, with the settings inside of the places of a network."""
    settings = {setting: found for setting in HOST_SETTINGS if (found := _read(f"/proc/sys/{setting}")) is not None}
    controls: set[str] = set()
    if sites is not None:
        settings |= _inside(sites)
        controls = {
            node["congestion_control"] for node in (sites.state() or {}).get("nodes", []) if not node["is_router"]
        }
    if not controls and "net/ipv4/tcp_congestion_control" in settings:
        controls = {settings["net/ipv4/tcp_congestion_control"]}
    return record.Environment(
        environment_id=environment_id,
        experiment_id=experiment_id,
        recorded_utc=record.utc_now(),
        host=socket.gethostname(),
        kernel=platform.release(),
        cpu_model=_cpu_model(),
        logical_cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clock_source=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        emulator=_emulator(sites),
        congestion_controls=sorted(control for control in controls if control),
        sysctls_json=json.dumps(settings, sort_keys=True),
        programs_json=json.dumps({name: _program(found) for name, found in sorted(programs.items())}),
    )


def available_memory_bytes() -> int:
    """What programs and files can still take without swapping; where the kernel does not say, all there is."""
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(directory: Path) -> int:
    """Room in a file system; where that is memory, what memory there is."""
    free = shutil.disk_usage(directory).free
    return min(free, available_memory_bytes()) if is_in_memory(directory) else free


def is_in_memory(directory: Path) -> bool:
    """Whether a directory is in tmpfs."""
    best, kind = "", ""
    path = str(directory.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, this_kind, *_ = line.split()
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, this_kind
    return kind == "tmpfs"


def _inside(sites: Sites) -> dict[str, str]:
    found = {}
    for name, place in sites.places.items():
        if not place.has_own_network:
            continue
        files = sites.agent(name).ask("read", paths=[f"/proc/sys/{setting}" for setting in SETTINGS])["files"]
        for path, value in files.items():
            found[f"{name}:{path.removeprefix('/proc/sys/')}"] = value
    return found


def _emulator(sites: Sites | None) -> str | None:
    state = None if sites is None else sites.state()
    if state is None:
        return None
    real_time = "before ordinary threads" if state.get("forwarder_is_real_time") else "beside ordinary threads"
    return f"gridlane wan, back end {state['backend']}, forwarder {real_time}, privilege {state['privilege']}"


def _program(found: Availability) -> dict[str, Any]:
    if not found.is_there:
        return {"reason": found.reason}
    return {"version": found.version, "path": found.path, "sha256": found.sha256}


def _cpu_model() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model", "cpu model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
