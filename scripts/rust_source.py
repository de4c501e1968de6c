"""The modules of a crate as files, without its tests: for the checks of sources."""

import re

# Tests at the end of a file.
_TESTS = re.compile(r"^#\[cfg\(test\)\]\s*\n(#\[[^\n]*\]\n)*(pub(\(\w+\))? )?mod \w+ *\{", re.M)


def modules(source):
    """Files below a directory `src`, and their texts: neither those of tests nor the tests at the end of others."""
    for file in sorted(source.rglob("*.rs")):
        if "tests" not in file.relative_to(source).with_suffix("").parts:
            text = file.read_text()
            cut = _TESTS.search(text)
            yield file, text[: cut.start()] if cut else text
