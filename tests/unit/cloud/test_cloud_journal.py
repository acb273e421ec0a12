import pytest

from tests.unit.cloud.builders import NOON, a_catalog, a_request, after
from wainwright.cloud.simulated.journal import Journal, JournalError
from wainwright.cloud.simulated.state import CloudState, Terminating


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state"


def events():
    launched = CloudState(a_catalog()).launch(a_request(labels={"team": "x"}), now=NOON, boots_at=after(2))
    return [launched, Terminating(instance_id=launched.instance.id, at=after(5), gone_at=after(6))]


def written(path):
    journal = Journal(path)
    for event in events():
        journal.append(event)
    journal.close()


def replayed(path):
    journal = Journal(path)
    try:
        return list(journal.replay())
    finally:
        journal.close()


def test_events_come_back_as_they_were_written(path):
    written(path)
    assert replayed(path) == events()


def test_a_line_without_its_end_is_cut_off_and_writing_goes_on_behind_the_last_whole_one(path):
    written(path)
    with path.open("ab") as file:
        file.write(b'{"type":"terminating","instance_')
    journal = Journal(path)
    assert list(journal.replay()) == events()
    journal.append(events()[1])
    journal.close()
    assert replayed(path) == [*events(), events()[1]]


def test_a_line_that_cannot_be_read_is_named(path):
    written(path)
    path.write_bytes(path.read_bytes().replace(b"instance_id", b"instance_ix", 1))
    with pytest.raises(JournalError, match=r"state, line \d"):
        replayed(path)


def test_two_services_cannot_share_a_state_file(path):
    journal = Journal(path)
    try:
        with pytest.raises(JournalError, match="in use"):
            Journal(path)
    finally:
        journal.close()
    Journal(path).close()
