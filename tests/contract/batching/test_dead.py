from wainwright.batching.dead import all_set_aside, is_set_aside, put_back, set_aside


def test_what_is_set_aside_is_kept_with_reason_and_time(store):
    set_aside(store, "pod", "u1", "kills the solver", "default/web")
    held = all_set_aside(store)["pod/u1"]
    assert (held.reason, held.what) == ("kills the solver", "default/web")
    assert 0 <= store.now_ms() - held.at_ms < 60_000
    assert is_set_aside(store, "pod", "u1")


def test_what_is_no_text_is_masked(store):
    set_aside(store, "entry", "x", "no text", "a\x00é\n")
    assert set(all_set_aside(store)["entry/x"].what) == {"a", "?"}


def test_what_is_put_back_is_gone(store):
    set_aside(store, "pod", "u1", "r", "w")
    assert put_back(store, "pod", "u1")
    assert not put_back(store, "pod", "u1")
    assert not is_set_aside(store, "pod", "u1")
