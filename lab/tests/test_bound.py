"""The bound: its own cases by hand, and what has to hold for any paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridlane_lab import bound

paths = st.lists(
    st.builds(bound.Path, st.floats(1e5, 1e9), st.floats(1e-4, 0.3), st.integers(1, 16)), min_size=1, max_size=5
)


def test_by_hand():
    bound.self_test()


def test_formulas():
    # 94.1 % of the wire with IPv4 and an MTU of 1500, as docs/guides/wan.md says.
    assert bound.payload_bytes_per_s(1e9) == pytest.approx(125e6 * 0.9415, rel=1e-3)


@given(paths, st.floats(1e3, 1e11))
def test_more_sources_are_never_slower(some, size):
    alone = min(bound.bound_s(size, [path], 3) for path in some)
    together = bound.bound_s(size, some, 3)
    assert together <= alone * (1 + 1e-9)
    assert together >= size / sum(path.payload_bytes_per_s for path in some) * (1 - 1e-9)


@given(paths, st.floats(1e3, 1e11), st.floats(1e5, 1e10))
def test_a_client_limit_is_kept(some, size, limit):
    limited = bound.bound_s(size, some, 3, limit)
    assert limited >= bound.bound_s(size, some, 3) * (1 - 1e-9)
    assert limited >= size / limit * (1 - 1e-9)
