"""Big files of storage sites, over HTTP, WebDAV and `root://`: open them from far away, copy them, list them.

    import gridlane

    with gridlane.open("root://eos.example.org//data/run1.root") as file:
        head, tail = file.readv([(0, 403), (file.size - 1000, 1000)])

    gridlane.copy(["https://a.example.org/run1.root", "root://b.example.org//run1.root"], "run1.root")

Every function takes credentials as keywords (see `Client`), and has a twin for event loops in `gridlane.aio`. For fsspec see
`gridlane.fsspec`, for uproot `gridlane.uproot`, for Parquet `gridlane.parquet`, for MiniSEED `gridlane.mseed`.
"""

from . import aio, errors
from ._client import AsyncClient, Client, CopyReport, Stat, of_client
from ._gridlane import __version__
from .errors import Error
from .file import File, Upload

stat = of_client("stat")
ls = of_client("ls")
mkdir = of_client("mkdir")
rmdir = of_client("rmdir")
rm = of_client("rm")
rename = of_client("rename")
checksum = of_client("checksum")
put = of_client("put")
copy = of_client("copy")
open = of_client("open")

__all__ = [
    "AsyncClient",
    "Client",
    "CopyReport",
    "Error",
    "File",
    "Stat",
    "Upload",
    "__version__",
    "aio",
    "checksum",
    "copy",
    "errors",
    "ls",
    "mkdir",
    "open",
    "put",
    "rename",
    "rm",
    "rmdir",
    "stat",
]
