"""Logs: what was told is in the file, once, whatever happened in between."""

import csv
import struct
import sys

import numpy as np
import pytest
from helpers import Walk

import asciime_gym as ag
from asciime_gym import _callbacks
from asciime_gym._callbacks import tags

TASK = Walk()


def optimizer(seed: int = 0) -> ag.Optimizer:
    return ag.Optimizer(ag.MapElites(batch_size=8), TASK, seed=seed, centroids=16)


def rows(path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def check_csv(path, history: ag.History):
    """The file holds the history, bit for bit."""
    header, *lines = rows(path)
    assert tuple(header) == history.columns
    for place, name in enumerate(header):
        read = np.array([line[place] for line in lines]).astype(history.kind(name))
        np.testing.assert_array_equal(read, history[name], err_msg=name)


def test_csv_holds_the_history(tmp_path):
    path = tmp_path / "new" / "log.csv"
    seen = []
    made = optimizer()
    result = made.fit(evaluations=40, callbacks=[ag.CsvLog(path), lambda _, row: seen.append(len(rows(path)) - 1)])
    check_csv(path, result.history)
    assert seen == [1, 2, 3, 4, 5]  # each row is there as soon as its generation has ended
    made.fit(evaluations=64, callbacks=ag.CsvLog(path))  # another log of the same file goes on
    check_csv(path, made.history)
    assert len(rows(path)) == 9


def test_csv_after_a_resume_repeats_and_loses_nothing(tmp_path):
    path, file = tmp_path / "log.csv", tmp_path / "run.h5"
    made = optimizer()
    made.fit(evaluations=24, callbacks=ag.CsvLog(path))
    made.save(file)
    made.fit(evaluations=56, callbacks=ag.CsvLog(path))  # these generations are not in the file, and are lost
    assert len(rows(path)) == 8
    with open(path, "a") as log:
        log.write("7,6")  # and the last line was cut off
    again = ag.Optimizer.load(file, task=TASK)
    again.fit(evaluations=40, callbacks=ag.CsvLog(path))
    check_csv(path, again.history)
    assert [line[0] for line in rows(path)[1:]] == ["0", "1", "2", "3", "4"]


def test_csv_is_made_up_where_nobody_logged(tmp_path):
    path, made, log = tmp_path / "log.csv", optimizer(), ag.CsvLog(tmp_path / "log.csv")
    made.fit(evaluations=24)
    made.fit(evaluations=32, callbacks=log)
    check_csv(path, made.history)
    made.fit(evaluations=48)  # the same log, after generations that it was not told of
    made.fit(evaluations=56, callbacks=log)
    check_csv(path, made.history)
    path.unlink()
    made.fit(evaluations=64, callbacks=log)
    check_csv(path, made.history)
    assert len(rows(path)) == 9


def test_csv_by_hand(tmp_path):
    made, log = optimizer(), ag.CsvLog(tmp_path / "log.csv")
    for _ in range(3):
        made.ask()
        made.tell(np.full(8, np.nan), np.zeros((8, 2)))  # an archive that stays empty
        log(made, made.history.last())
    check_csv(tmp_path / "log.csv", made.history)
    assert "-inf" in rows(tmp_path / "log.csv")[3]


@pytest.mark.parametrize("text", ["my notes\n", "generation,evaluations\n0,8\n"])
def test_csv_of_something_else_is_kept(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="not the log of this run"):
        optimizer().fit(evaluations=8, callbacks=ag.CsvLog(path))
    assert path.read_text() == text
    made = optimizer()
    made.fit(evaluations=8, callbacks=ag.CsvLog(path, overwrite=True))
    check_csv(path, made.history)


def test_csv_of_another_run_is_kept(tmp_path):
    path = tmp_path / "log.csv"
    optimizer(seed=0).fit(evaluations=24, callbacks=ag.CsvLog(path))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not the log of this run"):
        optimizer(seed=1).fit(evaluations=8, callbacks=ag.CsvLog(path))
    other = optimizer(seed=1)
    other.fit(evaluations=16)
    with pytest.raises(ValueError, match="overwrite=True"):
        other.fit(evaluations=24, callbacks=ag.CsvLog(path))
    assert path.read_bytes() == before
    restarted = optimizer(seed=0)  # from the start, before anything was saved
    restarted.fit(evaluations=16, callbacks=ag.CsvLog(path))
    check_csv(path, restarted.history)


def test_a_full_disk_does_not_end_the_run(tmp_path, monkeypatch):
    path, made, log = tmp_path / "log.csv", optimizer(), ag.CsvLog(tmp_path / "log.csv")
    made.fit(evaluations=16, callbacks=log)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_callbacks, "_csv", full)
        with pytest.warns(UserWarning, match="could not be written"):
            made.fit(evaluations=24, callbacks=log)
    assert len(rows(path)) == 3
    made.fit(evaluations=32, callbacks=log)
    check_csv(path, made.history)


def events(path) -> list:
    """The events in one of TensorBoard's files: length, its checksum, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    data, found = path.read_bytes(), []
    while data:
        size, check = struct.unpack("<QI", data[:12])
        body, last = data[12 : 12 + size], struct.unpack("<I", data[12 + size : 16 + size])[0]
        assert check == masked_crc32c(data[:8]) and last == masked_crc32c(body)
        found.append(Event.FromString(body))
        data = data[16 + size :]
    return found


def shown(folder) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: files by name; the start of a session hides the steps from there on."""
    from tensorboardX.proto.event_pb2 import SessionLog

    curves: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        assert events(path)[0].file_version == "brain.Event:2"
        for event in events(path):
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                curves = {tag: [p for p in points if p[0] < event.step] for tag, points in curves.items()}
            for value in event.summary.value:
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves


def check_events(folder, history: ag.History):
    curves = shown(folder)
    assert set(curves) == set(tags(history).values())
    for name, tag in tags(history).items():
        expected = list(zip(history["evaluations"].tolist(), np.float32(history[name]).tolist(), strict=True))
        assert curves[tag] == expected, name


def test_tensorboard_holds_the_history(tmp_path):
    made = optimizer()
    with ag.TensorBoardLog(tmp_path / "new" / "log") as log:
        made.fit(evaluations=40, callbacks=log)
        check_events(tmp_path / "new" / "log", made.history)  # before it is closed
        made.fit(evaluations=48, callbacks=log)
    check_events(tmp_path / "new" / "log", made.history)
    assert len(list((tmp_path / "new" / "log").glob("events*"))) == 1
    assert {"archive/qd_score", "archive/max_fitness", "run/seconds", "additions/iso_line"} <= set(
        tags(made.history).values()
    )


def test_tensorboard_after_a_resume_repeats_and_loses_nothing(tmp_path):
    folder, file = tmp_path / "log", tmp_path / "run.h5"
    made = optimizer()
    made.fit(evaluations=24, callbacks=ag.TensorBoardLog(folder))
    made.save(file)
    made.fit(evaluations=56, callbacks=ag.TensorBoardLog(folder))
    check_events(folder, made.history)
    again = ag.Optimizer.load(file, task=TASK)
    again.fit(evaluations=40, callbacks=ag.TensorBoardLog(folder))
    check_events(folder, again.history)
    times = [event.wall_time for event in events(max(folder.glob("events*"))) if event.step]
    assert times == sorted(times)


def test_tensorboard_leaves_out_what_there_is_not(tmp_path):
    made, log = optimizer(), ag.TensorBoardLog(tmp_path)
    made.ask()
    made.tell(np.full(8, np.nan), np.zeros((8, 2)))
    log(made, made.history.last())
    curves = shown(tmp_path)
    assert "archive/max_fitness" not in curves and curves["run/refused"] == [(8, 8.0)]


def test_tensorboard_folder_of_another_run(tmp_path):
    optimizer(seed=0).fit(evaluations=8, callbacks=ag.TensorBoardLog(tmp_path))
    with pytest.raises(ValueError, match="the log of another run"):
        optimizer(seed=1).fit(evaluations=8, callbacks=ag.TensorBoardLog(tmp_path))
    assert len(list(tmp_path.glob("events*"))) == 1


def test_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    with pytest.raises(ImportError, match=r"tensorboardX.*asciime_gym\[analysis\]"):
        optimizer().fit(evaluations=8, callbacks=ag.TensorBoardLog(tmp_path))
