"""`python -m gridlane_lab`."""

import sys

from gridlane_lab.cli import main

sys.exit(main())
