"""Asks for a file's state in one session, until that is refused. Prints what the server says then.

Usage: gsi_session.py URL PATH FILE. FILE is made when the first answer has come.
"""

import sys
import time

from XRootD import client

url, path, began = sys.argv[1:]
session = client.FileSystem(url)
status, _ = session.stat(path)
if not status.ok:
    sys.exit(f"refused at once: {status.message}")
with open(began, "w"):
    pass
deadline = time.monotonic() + 60
while status.ok:
    if time.monotonic() > deadline:
        sys.exit("it is never refused")
    time.sleep(0.02)
    status, _ = session.stat(path)
print(status.errno, status.message)
