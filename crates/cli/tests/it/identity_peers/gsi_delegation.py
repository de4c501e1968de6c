"""Asks for a copy with a proxy that is not lent: without a key, or with one that the source is not told, as xrdcp does. Prints
what the server says.

Usage: gsi_delegation.py TARGET SOURCE [KEY]
"""

import sys

from XRootD import client
from XRootD.client.flags import OpenFlags

target, source, *key = sys.argv[1:]
authority, _, path = source.removeprefix("root://").partition("/")
asked = f"tpc.dlgon=1&tpc.dlg={authority}&tpc.src={authority}&tpc.lfn=/{path.lstrip('/')}&tpc.stage=copy"
asked += "".join(f"&tpc.key={one}" for one in key)
file = client.File()
status, _ = file.open(f"{target}?{asked}", OpenFlags.NEW)
if not status.ok:
    sys.exit(f"refused at once: {status.message}")
status, _ = file.sync()
print(status.message)
