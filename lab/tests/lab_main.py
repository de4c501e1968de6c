"""`gridlane-lab` with the tools of the tests beside those of the field."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src"), str(Path(__file__).resolve().parent)]

import fakes  # noqa: E402

from gridlane_lab import cli, registry  # noqa: E402

registry.load()
fakes.register()
sys.exit(cli.main())
