"""`wainwright kpa replay` from its command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workers.cli import cli
from workers.kpa.traces import TraceError, read_csv, read_json

GOLDEN = Path(__file__).parents[2] / "golden" / "kpa"
F41 = ("-c", "container-concurrency-target-percentage=100", "-a", "target=10")


def kpa(*arguments):
    return CliRunner().invoke(cli, ["kpa", "replay", *map(str, arguments)])


def decisions(*arguments):
    answer = kpa(*arguments, "--output", "json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_a_golden_trace_gives_knatives_own_decisions():
    file = GOLDEN / "trace_spike_single_a.json"
    trace = json.loads(file.read_text())
    columns = trace["event_columns"]["d"][1:]
    expected = [dict(zip(columns, event[1:], strict=True)) for event in trace["events"] if event[0] == "d"]
    assert decisions(file) == expected


def test_panic_takes_the_larger_of_both_windows():
    """Field case f41: a panic wish of 4 against 2 ready pods, while the stable window still asks for 10."""
    found = {one["t"]: one for one in decisions(GOLDEN / "f41-panic-takes-the-larger.json")}
    at = found[106]
    assert (at["panic"], at["stable_value"], at["panic_value"], at["desired"]) == (True, 93, 40, 10)
    assert all(found[t]["panic"] and found[t]["desired"] == 10 for t in range(108, 139, 2))


def test_the_same_load_as_csv_follows_a_model_of_its_pods():
    found = decisions(GOLDEN / "f41-panic-takes-the-larger.csv", *F41, "--ready", 10)
    assert found[0] == {**found[0], "t": 2, "ready_pods": 10, "desired": 10}
    assert found[-1]["ready_pods"] < 10


def test_settings_are_tried_on_recorded_load():
    file = GOLDEN / "trace_spike_single_a.json"
    before = max(one["desired"] for one in decisions(file))
    after = max(one["desired"] for one in decisions(file, "-a", "autoscaling.knative.dev/target=1000"))
    assert after < before
    modelled = decisions(file, "--pods", "model", "--lag", 0)
    assert [one["ready_pods"] for one in modelled] != [one["ready_pods"] for one in decisions(file)]


def test_several_files_say_which_decision_is_whose():
    found = decisions(GOLDEN / "trace_steady_low_a.json", GOLDEN / "trace_steady_high_a.json")
    assert {one["trace"] for one in found} == {"steady_low_a", "steady_high_a"}


def test_the_table_shows_what_changed():
    answer = kpa(GOLDEN / "f41-panic-takes-the-larger.json")
    assert "69 decisions, 3 changes" in answer.output
    assert "panic" in answer.output


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_picture_is_written(tmp_path, form):
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"out.{form}"
    answer = kpa(GOLDEN / "f41-panic-takes-the-larger.json", "--plot", picture)
    assert answer.exit_code == 0, answer.output
    assert picture.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")


def test_a_picture_of_another_kind_is_refused(tmp_path):
    answer = kpa(GOLDEN / "f41-panic-takes-the-larger.json", "--plot", tmp_path / "out.gif")
    assert (answer.exit_code, ".svg" in answer.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-c", "max-scale-up-rate=NaN"], "max-scale-up-rate = 'NaN'"),
        (["-c", "nonsense"], "is not KEY=VALUE"),
    ],
)
def test_settings_at_fault_end_it(arguments, why):
    answer = kpa(GOLDEN / "f41-panic-takes-the-larger.json", *arguments)
    assert (answer.exit_code, why in answer.output) == (2, True)


def test_an_annotation_at_fault_is_named_and_counts_as_absent():
    answer = kpa(GOLDEN / "f41-panic-takes-the-larger.json", "-a", "window=soon")
    assert answer.exit_code == 0
    assert "window = 'soon'" in answer.output


def csv(text, **options):
    options = {"name": "t", "tick_s": 2.0, "ready": 1} | options
    return read_csv(text.splitlines(), **options)


def test_csv_samples_of_one_second_add_up_over_sources_and_repeats_replace():
    trace, recorded = csv("time,value,source\n100,5,a\n100,6,a\n100.7,10,b\n104,1,a\n")
    assert trace.t0_unix == 100
    assert trace.events == [["s", 0, 16.0], ["d", 2.0, 1], ["s", 4, 1.0], ["d", 4.0, 1]]
    assert not recorded


def test_csv_may_carry_pod_counts_and_iso_times():
    trace, recorded = csv("time,value,ready\n2026-03-01T12:00:00Z,5,3\n2026-03-01T12:00:04+00:00,5,4\n")
    assert recorded
    assert trace.initial.ready_pods == 3
    assert [event for event in trace.events if event[0] == "d"] == [["d", 2.0, 3], ["d", 4.0, 4]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "columns missing: time, value; found: none"),
        ("time,load\n1,2\n", "columns missing: value; found: time, load"),
        ("time,value\n", "no sample"),
        ("time,value\n1,2\n", "over before the first decision"),
        ("time,value\nsoon,1\n", "line 2: time='soon'"),
        ("time,value\n1,NaN\n4,-1\n5,1e300\n6,\n", "line 3: value='-1' is no load: -1 is negative"),
        ("time,value,ready\n1,1,many\n", "line 2: ready='many'"),
        ("time,value\n-5,1\n", "out of range"),
    ],
)
def test_a_csv_that_cannot_be_replayed_names_every_fault(text, why):
    with pytest.raises(TraceError) as raised:
        csv(text)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "is no kpa-trace/1"),
        (b'{"schema": "kpa-trace/2", "events": []}', "schema 'kpa-trace/2'"),
        (b'{"events": [["s", 1, 2]]}', "no decision"),
    ],
)
def test_a_json_that_is_no_trace_is_refused(text, why):
    with pytest.raises(TraceError, match=why):
        read_json(text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    answer = kpa(tmp_path / "missing.json")
    assert (answer.exit_code, "missing.json" in answer.output) == (2, True)


def test_an_event_that_is_none_is_named(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"events": [["z", 1], ["d", 2, 1]]}')
    answer = kpa(file)
    assert (answer.exit_code, "not an event" in answer.output.replace("\n", " ")) == (2, True)
