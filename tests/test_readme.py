"""The README's examples, run from top to bottom, smaller."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMALLER = {
    "batch_size=512": "batch_size=64",
    "10_000": "128",
    "12_000": "192",
    "batch_size=128": "batch_size=32",
    "evaluations=640": "evaluations=96",
}


@pytest.mark.slow
def test_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 8
    names: dict = {}
    coverage = []
    for block in blocks:
        for large, small in SMALLER.items():
            block = block.replace(large, small)
        exec(compile(block, "README.md", "exec"), names)
        coverage.append(names["optimizer"].archive.coverage)
    out = capsys.readouterr().out
    assert "stopped_by" not in out and "evaluations" in out  # the print of the first example
    assert coverage[1] > 0.9  # the arm
    assert names["action"].shape == (3,)
    assert names["episode"].steps == names["archive"].best().steps
    assert len(names["again"].corrected) > 0


def test_the_readme_says_only_what_is_there():
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\((data/[^)]+)\)", text):
        assert (ROOT / path).exists(), path
