from wainwright.batching.ticks import record_tick, take_slot


def test_slot_is_taken_once_however_many_beats_send_it(store):
    """Two beats send each tick; the slots are an hour long, so that this test cannot straddle two."""
    slot = take_slot(store, "sweep", 3_600_000)
    assert slot == store.now_ms() // 3_600_000
    assert take_slot(store, "sweep", 3_600_000) is None
    assert take_slot(store, "resync", 3_600_000) == slot


def test_next_slot_is_free(store):
    first = take_slot(store, "sweep", 5)
    while (second := take_slot(store, "sweep", 5)) is None:
        pass
    assert second > first


def test_guards_expire(store):
    slot = take_slot(store, "sweep", 1000)
    assert 0 < store.redis.pttl(store.keys.slot("sweep", slot)) <= 10_000


def test_last_tick_is_on_record_and_an_older_one_does_not_replace_it(store):
    record_tick(store, "sweep", 7, took_ms=12, by="tick-1", outcome="ok")
    record_tick(store, "sweep", 6, took_ms=99, by="tick-2", outcome="late")
    tick = store.redis.hgetall(store.keys.tick("sweep"))
    assert int(tick.pop("at_ms")) <= store.now_ms()
    assert tick == {"slot": "7", "took_ms": "12", "by": "tick-1", "outcome": "ok"}
