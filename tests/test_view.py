"""The archive as people read it: tables, files, and the rows behind them."""

import csv
import json
import os
import sys

import numpy as np
import pytest
from helpers import Walk

import asciime_gym as ag
from asciime_gym import _tables

POLICY = ag.MLP(2, 1, hidden=())  # 3 parameters
COLUMNS = ("cell", "fitness", "descriptor", "genotype", "operator", "evaluation", "first_filled", "steps", "key")
ROWS = {  # four cells, of which the first is empty
    "genotype": np.float32([[0, 0, 0], [1, 2, 3], [1 / 3, -1e-42, 3.4e38], [7, 8, 9]]),
    "fitness": np.float32([-np.inf, 1.5, 0.1, -2]),
    "descriptor": np.float32([[0, 0], [0.75, 0.25], [1 / 3, 0.75], [0.75, 0.8]]),
    "operator": np.int32([-1, 1, 0, 1]),
    "evaluation": np.int32([-1, 30, 5, 17]),
    "first_filled": np.int32([-1, 10, 5, 16]),
    "steps": np.int32([0, 12, 11, 10]),
    "key": np.uint32([[0, 0], [1, 2], [3, 4], [5, 2**32 - 1]]),
}


def small(rows=ROWS, **options) -> ag.ArchiveView:
    options = {"operators": ("initial", "iso_line"), "policy": POLICY, "descriptor_names": ("left", "right")} | options
    centroids = np.float32([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]])
    return ag.ArchiveView(
        rows, centroids=centroids, low=np.zeros(2, np.float32), high=np.ones(2, np.float32), **options
    )


def with_sources() -> ag.ArchiveView:
    about = {"made_by": "merge", "sources": ["a.h5", "b.h5"]}
    return small(ROWS | {"source": np.int32([-1, 1, 0, 1])}, about=about)


@pytest.mark.parametrize("made", [small(), with_sources()])
def test_rows_are_what_was_given(made):
    rows = made.rows()
    assert set(rows) == {*ROWS, *(["source"] if made.source is not None else [])}
    for name, column in ROWS.items():
        np.testing.assert_array_equal(rows[name], column)
        assert rows[name].dtype == column.dtype
    if made.source is not None:
        assert rows["source"].tolist() == [-1, 1, 0, 1]
    rows["fitness"][:] = 99  # a copy
    assert made.qd_score == pytest.approx(-0.4)


def test_empty_cells_are_blank_whatever_they_held():
    rows = {name: column.copy() for name, column in ROWS.items()}
    for name in ("genotype", "descriptor", "steps", "key", "operator"):
        rows[name][0] = 1
    for name, column in small(rows).rows().items():
        np.testing.assert_array_equal(column, ROWS[name])


def test_rows_of_a_run_and_of_nothing():
    made = ag.Optimizer(ag.MapElites(batch_size=8), Walk(), centroids=16)
    empty = made.archive
    assert not len(empty) and len(empty.to_dataframe()) == 0 and empty.to_xarray().sizes["elite"] == 0
    assert (empty.rows()["operator"] == -1).all() and empty.rows()["genotype"].shape == (16, Walk().policy.size)
    made.fit(evaluations=16)
    elites = made._run.archive.elites
    for name, column in made.archive.rows().items():
        expected = made._run.archive.first_filled if name == "first_filled" else getattr(elites, name)
        np.testing.assert_array_equal(column, np.asarray(expected))


def test_dataframe():
    frame = small().to_dataframe()
    names = ["cell", "objective", "measures_0", "measures_1", "operator", "evaluation", "first_filled", "steps"]
    assert list(frame.columns) == names
    assert frame["cell"].tolist() == [1, 2, 3] and frame["objective"].tolist() == ROWS["fitness"][1:].tolist()
    assert frame["operator"].tolist() == ["iso_line", "initial", "iso_line"]
    assert frame["measures_1"].tolist() == ROWS["descriptor"][1:, 1].tolist()
    frame = with_sources().to_dataframe(genotype=True)
    assert list(frame.columns) == [*names, "source", "solution_0", "solution_1", "solution_2"]
    assert frame["source"].tolist() == [1, 0, 1] and frame["solution_2"].tolist() == ROWS["genotype"][1:, 2].tolist()


def test_xarray():
    data = small(problem={"name": "walk"}).to_xarray()
    assert dict(data.sizes) == {"elite": 3, "dimension": 2, "parameter": 3}
    assert data["cell"].values.tolist() == [1, 2, 3] and "cell" in data.coords
    assert data["dimension"].values.tolist() == ["left", "right"]
    assert set(data.data_vars) == {
        "fitness", "descriptor", "genotype", "operator", "evaluation", "first_filled", "steps"
    }  # fmt: skip
    for name in ("fitness", "descriptor", "genotype", "evaluation", "first_filled", "steps"):
        np.testing.assert_array_equal(data[name].values, ROWS[name][1:])
        assert len(data[name].attrs["description"]) > 10
    assert data["operator"].values.tolist() == ["iso_line", "initial", "iso_line"]
    assert data.attrs["qd_score"] == small().qd_score and data.attrs["coverage"] == 0.75 and data.attrs["cells"] == 4
    assert data.attrs["descriptor_low"] == [0, 0] and data.attrs["descriptor_high"] == [1, 1]
    assert json.loads(data.attrs["problem"]) == {"name": "walk"} and "about" not in data.attrs
    assert float(data["descriptor"].sel(dimension="right").max()) == np.float32(0.8)
    assert float(data["fitness"].where(data["cell"] == 2, drop=True)[0]) == np.float32(0.1)

    data = with_sources().to_xarray()
    assert data["source"].values.tolist() == [1, 0, 1] and data.attrs["sources"] == ["a.h5", "b.h5"]


@pytest.mark.parametrize("genotype", [False, True])
@pytest.mark.parametrize("made", [small(), with_sources()])
def test_csv_round_trip(made, genotype, tmp_path):
    pandas = pytest.importorskip("pandas")
    made.to_csv(tmp_path / "new" / "table.csv", genotype=genotype)
    read, frame = pandas.read_csv(tmp_path / "new" / "table.csv"), made.to_dataframe(genotype=genotype)
    assert list(read.columns) == list(frame.columns)
    for name in frame.columns:
        kind = None if name == "operator" else frame[name].to_numpy().dtype
        np.testing.assert_array_equal(read[name].to_numpy(kind), frame[name].to_numpy(kind), err_msg=name)


def test_csv_needs_no_extra(tmp_path, monkeypatch):
    for name in ("pandas", "xarray"):
        monkeypatch.setitem(sys.modules, name, None)
    made = small(operators=("initial", 'a,"b'))
    made.to_csv(tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["operator"] for line in lines] == ['a,"b', "initial", 'a,"b']
    assert [np.float32(line["objective"]) for line in lines] == made.fitness.tolist()
    for table in (made.to_dataframe, made.to_xarray):
        with pytest.raises(ImportError, match=r"asciime_gym\[analysis\]"):
            table()


def test_a_failed_csv_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    small().to_csv(path)
    before = path.read_bytes()

    def fail(*_):
        yield ["1"]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_tables, "_lines", fail)
    with pytest.raises(OSError, match="No space left"):
        small().to_csv(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["table.csv"]


@pytest.mark.parametrize("made", [small(), with_sources()])
def test_saved_and_loaded(made, tmp_path):
    made.save(tmp_path / "archive.h5")
    read = ag.load_archive(tmp_path / "archive.h5")
    for name in (*COLUMNS, "centroids", "low", "high"):
        np.testing.assert_array_equal(getattr(read, name), getattr(made, name), err_msg=name)
    assert read.operators == made.operators and read.descriptor_names == made.descriptor_names
    assert read.sources == made.sources and (read.source is None) == (made.source is None)
    if made.source is not None:
        np.testing.assert_array_equal(read.source, made.source)
    np.testing.assert_array_equal(read.policy(0)(np.ones(2)), made.policy(0)(np.ones(2)))


def test_an_empty_archive_can_be_saved(tmp_path):
    made = ag.Optimizer(ag.MapElites(batch_size=8), Walk(), centroids=16).archive
    made.save(tmp_path / "archive.h5")
    read = ag.load_archive(tmp_path / "archive.h5")
    assert not len(read) and read.cells == 16 and read.operators == made.operators
