from hypothesis import given
from hypothesis import strategies as st

from wainwright.podscaling.sharding import shard_of

KEYS = [f"team-{number % 7}/web-{number}" for number in range(4000)]


def test_one_more_shard_moves_only_what_it_gets():
    for shards in (1, 4, 16):
        before = {key: shard_of(key, shards) for key in KEYS}
        after = {key: shard_of(key, shards + 1) for key in KEYS}
        moved = [key for key in KEYS if before[key] != after[key]]
        assert {after[key] for key in moved} == {shards}
        assert abs(len(moved) - len(KEYS) / (shards + 1)) < 0.25 * len(KEYS) / (shards + 1)


def test_shards_are_about_equal():
    counts = [0] * 16
    for key in KEYS:
        counts[shard_of(key, 16)] += 1
    assert min(counts) > 0.75 * len(KEYS) / 16
    assert max(counts) < 1.25 * len(KEYS) / 16


@given(st.text(min_size=1), st.integers(1, 256))
def test_every_key_has_one_shard_for_ever(key, shards):
    assert 0 <= shard_of(key, shards) < shards
    assert shard_of(key, shards) == shard_of(key, shards)


def test_shards_do_not_change_between_versions():
    """What is where must not depend on who asks."""
    assert [shard_of(key, 16) for key in KEYS[:8]] == [0, 1, 10, 10, 15, 14, 5, 9]
