"""The rights of a client, by pyxrootd.

Usage: root_identity.py URL (read|write PATH)..., where the URL ends in //. Says for each the number of bytes, "ok", or
the number of the server's error.
"""

import sys

from XRootD import client
from XRootD.client.flags import OpenFlags

url, rest = sys.argv[1], sys.argv[2:]
for act, path in zip(rest[::2], rest[1::2]):
    with client.File() as file:
        flags = OpenFlags.READ if act == "read" else OpenFlags.NEW | OpenFlags.UPDATE
        status, _ = file.open(url + path, flags)
        if not status.ok:
            print(status.errno)
        elif act == "read":
            status, data = file.read()
            print(len(data) if status.ok else status.errno)
        else:
            status, _ = file.write(b"words")
            print("ok" if status.ok else status.errno)
            file.close()
