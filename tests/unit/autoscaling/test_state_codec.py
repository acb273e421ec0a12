from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaling.builders import a_spec
from tests.unit.autoscaling.strategies import START, histories, specs
from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.codec import (
    StateUnreadable,
    decode_state,
    decode_windows,
    encode_state,
    encode_windows,
)
from wainwright.autoscaling.decider import DeciderState, decide
from wainwright.autoscaling.delay import DelayWindow
from wainwright.autoscaling.instants import from_unix_ms
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.autoscaling.windows import Windows

numbers = st.integers(-(2**31), 2**31 - 1)
states = st.builds(
    DeciderState,
    desired=numbers,
    excess_burst_capacity=numbers,
    panic_since_ms=st.none() | st.integers(0, 2**45),
    max_panic_pods=numbers,
    delay=st.none()
    | st.builds(
        DelayWindow, length=st.integers(1, 1800), wishes=st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple)
    ),
    decided_ms=st.integers(0, 2**45),
)


@given(states)
def test_encoding_and_decoding_a_state_is_identity(state: DeciderState) -> None:
    assert decode_state(encode_state(state)) == state


@given(specs(), st.sampled_from(Aggregation), histories())
def test_encoding_and_decoding_windows_is_identity(
    spec: DeciderSpec, aggregation: Aggregation, samples: list[tuple[int, float]]
) -> None:
    windows = Windows.new(spec).with_aggregation(aggregation)
    for second, value in samples:
        windows = windows.record(from_unix_ms(1000 * second), value)
    decoded = decode_windows(encode_windows(windows))
    assert decoded == windows
    assert decoded.stable.total.hex() == windows.stable.total.hex()  # to the last bit


def test_state_is_text_that_people_can_read() -> None:
    spec = a_spec(scale_down_delay_s=4)
    windows = Windows.new(spec).record(START, 25.0)
    _, state = decide(spec, DeciderState.start(spec, 1, START), windows, 1, START)
    assert encode_state(state) == (
        b'{"desired":3,"excess_burst_capacity":-226,"panic_since_ms":1900000000000,"max_panic_pods":3,'
        b'"delay":{"length":2,"wishes":[[950000000,3]]},"decided_ms":1900000000000}'
    )
    assert encode_windows(windows).startswith(
        b'{"metric":"concurrency","stable":{"length":60,"aggregation":"linear","first_s":1900000000,'
        b'"last_s":1900000000,"total":25.0,"values":[25.0]},'
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"desired":"x"}',
        b'{"metric":"concurrency","stable":{"length":1,"values":[1,2]},"panic":{"length":1}}',
        b'{"metric":"concurrency","stable":{"length":1,"values":[1e999]},"panic":{"length":1}}',
        b'{"metric":"concurrency","stable":{"length":1,"values":[NaN]},"panic":{"length":1}}',
        b"\xff",
    ],
)
def test_text_that_is_no_state_is_told_apart_from_state(text: bytes) -> None:
    with pytest.raises(StateUnreadable):
        decode_windows(text)
    with pytest.raises(StateUnreadable):
        decode_state(text)
