"""Programs that the lab runs as processes of their own. They need Python's standard library alone, and what each names:
an interpreter without this package can run them."""
