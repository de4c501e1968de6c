"""Keeps what matplotlib caches out of the home directory."""

import os
import tempfile

os.environ.setdefault("MPLCONFIGDIR", os.path.join(tempfile.gettempdir(), f"gridlane-lab-matplotlib-{os.getuid()}"))
