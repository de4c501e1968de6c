"""The tools of the field, a module each. Importing this package makes all of them known to `registry`."""

from gridlane_lab.drivers import (
    aria2c,
    cp,
    curl,
    davix,
    declared,
    fdt,
    gfal_copy,
    globus_url_copy,
    gridlane,
    gridlane_read,
    iperf3,
    rclone,
    readers,
    xrdcp,
)

__all__ = [
    "aria2c",
    "cp",
    "curl",
    "davix",
    "declared",
    "fdt",
    "gfal_copy",
    "globus_url_copy",
    "gridlane",
    "gridlane_read",
    "iperf3",
    "rclone",
    "readers",
    "xrdcp",
]
