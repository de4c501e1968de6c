"""The module's functions for event loops: `await gridlane.aio.stat(url)`.

Nothing blocks the loop, and no thread but the loop's own runs Python for them.
"""

from ._client import of_async_client

stat = of_async_client("stat")
ls = of_async_client("ls")
mkdir = of_async_client("mkdir")
rmdir = of_async_client("rmdir")
rm = of_async_client("rm")
rename = of_async_client("rename")
checksum = of_async_client("checksum")
put = of_async_client("put")
copy = of_async_client("copy")
open = of_async_client("open")

__all__ = ["stat", "ls", "mkdir", "rmdir", "rm", "rename", "checksum", "put", "copy", "open"]
