"""Servers that the lab starts at sites. Importing it makes their drivers known."""

from gridlane_lab.servers import apache, gridftp, gridlane, iperf3, nginx, xrootd

__all__ = ["apache", "gridftp", "gridlane", "iperf3", "nginx", "xrootd"]
