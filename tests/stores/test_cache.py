"""What is remembered stays within its bounds, and what is forgotten is the oldest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.stores.cache import SMALL, Cache

LARGE = 10 * SMALL


def test_so_many_values_are_remembered() -> None:
    cache: Cache[int, str] = Cache(3)

    for number in range(5):
        cache.put(number, str(number))

    assert [cache.get(number) for number in range(5)] == [None, None, "2", "3", "4"]
    assert len(cache) == 3


def test_large_values_are_remembered_up_to_so_many_bytes() -> None:
    """However few they are: sixteen thousand payloads of a megabyte are more memory than most machines have."""
    cache: Cache[str, str] = Cache(100, 2 * LARGE)
    cache.put("small", "s", 1)

    for name in "abcd":
        cache.put(name, name, LARGE)

    assert [name for name in ("small", *"abcd") if name in cache] == ["small", "c", "d"]


def test_what_is_larger_than_all_that_may_be_remembered_is_not() -> None:
    cache: Cache[str, str] = Cache(100, LARGE)
    cache.put("a", "a", LARGE)

    cache.put("b", "b", LARGE + 1)

    assert len(cache) == 0


steps = st.tuples(st.integers(0, 8), st.sampled_from([0, SMALL, LARGE, 2 * LARGE]), st.booleans())


@given(st.lists(steps, max_size=60))
def test_whatever_comes_and_goes_the_bounds_hold(steps: list[tuple[int, int, bool]]) -> None:
    cache: Cache[int, int] = Cache(5, 3 * LARGE)

    for key, size, stays in steps:
        cache.put(key, size, size)
        if not stays:
            cache.pop(key)
        kept = [value for number in range(9) if (value := cache.get(number)) is not None]
        assert len(kept) == len(cache) <= 5
        assert sum(size for size in kept if size > SMALL) == cache._bytes <= 3 * LARGE

    cache.clear()
    assert (len(cache), cache._bytes) == (0, 0)
