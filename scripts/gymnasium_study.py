"""ASCII-ME beside MAP-Elites on Gymnasium's Hopper-v5, at equal evaluations: a table, and a picture.

    python scripts/gymnasium_study.py                 # 20,000 evaluations, seeds 0, 1, 2

A run that is there already is not repeated, and one that was stopped goes on: call it again after Ctrl-C.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from examples.hopper_v5 import hopper_task
from scipy.spatial import KDTree

import asciime_gym as ag
from asciime_gym._process import prepare

METHODS = {"ascii_me": (ag.AsciiME, "ASCII-ME", "#D55E00"), "map_elites": (ag.MapElites, "MAP-Elites", "#0072B2")}


def run(name: str, seed: int, evaluations: int, batch_size: int, episode_length: int, folder: Path) -> ag.Optimizer:
    """One run, from the file as far as it goes."""
    method, path = METHODS[name][0], folder / f"{name}_{seed}.h5"
    algorithm = method(batch_size=batch_size)
    with hopper_task(method, episode_length, num_envs=64) as task:
        if path.exists():
            optimizer = ag.Optimizer.load(path, algorithm=algorithm, task=task)
        else:
            optimizer = ag.Optimizer(algorithm, task, seed=seed)
        begin, before = time.perf_counter(), optimizer.evaluations
        if before < evaluations:
            result = optimizer.fit(evaluations=evaluations, checkpoint=path, progress=True)
            if result.stopped_by == "interrupt":
                raise SystemExit(f"stopped at {optimizer.evaluations:,} evaluations of {name}, seed {seed}")
    spent, seconds = optimizer.evaluations - before, time.perf_counter() - begin
    print(f"{name}, seed {seed}: {optimizer.archive}; {spent:,} evaluations in {seconds:,.0f} s", flush=True)
    return optimizer


def table(runs: dict[tuple[str, int], ag.Optimizer]) -> str:
    """The runs in Markdown, and which method has the higher QD score at each seed."""
    lines = [
        "| algorithm | seed | evaluations | QD score | coverage | best | lowest elite |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, seed), optimizer in runs.items():
        archive = optimizer.archive
        figures = f"{archive.qd_score:,.0f} | {100 * archive.coverage:.1f} % | {archive.best().fitness:,.0f}"
        lines.append(
            f"| {METHODS[name][1]} | {seed} | {optimizer.evaluations:,} | {figures} | {archive.fitness.min():,.1f} |"
        )
    seeds = sorted({seed for _, seed in runs})
    ratios = [runs["ascii_me", seed].archive.qd_score / runs["map_elites", seed].archive.qd_score for seed in seeds]
    higher = sum(ratio > 1 for ratio in ratios)
    figures = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    lines += ["", f"QD score of ASCII-ME over that of MAP-Elites: {figures}; higher in {higher} of {len(seeds)} seeds."]
    return "\n".join(lines)


def draw(runs: dict[tuple[str, int], ag.Optimizer], path: Path):
    """QD score over evaluations, a line per run, beside each method's map of the first seed."""
    from matplotlib import pyplot as plt

    first = min(seed for _, seed in runs)
    figure, (curves, *maps) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for (name, seed), optimizer in runs.items():
        _, title, colour = METHODS[name]
        label = title if seed == first else None
        curves.plot(optimizer.history["evaluations"], optimizer.history["qd_score"], color=colour, label=label)
    curves.set(
        xlabel="evaluations", ylabel="QD score", xlim=(0, None), ylim=(0, None), title="Hopper-v5, one line a seed"
    )
    curves.xaxis.set_major_formatter("{x:,.0f}")
    curves.yaxis.set_major_formatter("{x:,.0f}")
    curves.grid(alpha=0.3)
    curves.legend()
    archives = [runs[name, first].archive for name in METHODS]
    limits = np.percentile(np.concatenate([archive.fitness for archive in archives]), (1, 99))
    for axes, name, archive in zip(maps, METHODS, archives, strict=True):
        _map(archive, axes, limits)
        axes.set_title(f"{METHODS[name][1]}, seed {first}: {100 * archive.coverage:.0f} % of {archive.cells:,} cells")
    figure.colorbar(maps[0].images[0], ax=maps, label="fitness", extend="both")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _map(archive: ag.ArchiveView, axes: Any, limits: np.ndarray):
    """Each point of the plane in the colour of its cell's elite; empty cells are grey."""
    width, height = 480, 360
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    unit = (archive.centroids - archive.low) / (archive.high - archive.low)  # as the archive measures distances
    cell = KDTree(unit).query(np.stack([x, y], axis=-1))[1]
    fitness = np.full(archive.cells, np.nan)
    fitness[archive.cell] = archive.fitness
    axes.set_facecolor("#D8D8D8")
    axes.set(xlabel=archive.descriptor_names[0], ylabel=archive.descriptor_names[1])
    extent = (archive.low[0], archive.high[0], archive.low[1], archive.high[1])
    options = {"vmin": limits[0], "vmax": limits[1], "cmap": "viridis", "aspect": "auto", "interpolation": "none"}
    axes.imshow(fitness[cell], origin="lower", extent=extent, **options)


def main(
    evaluations: int = 20_000,
    seeds: tuple[int, ...] = (0, 1, 2),
    batch_size: int = 200,
    episode_length: int = 250,
    folder: Path = Path("runs/hopper_v5"),
    picture: Path = Path("data/pictures/hopper_v5.png"),
):
    prepare()
    folder.mkdir(parents=True, exist_ok=True)
    options = evaluations, batch_size, episode_length, folder
    runs = {(name, seed): run(name, seed, *options) for seed in seeds for name in METHODS}
    runs = {key: runs[key] for key in sorted(runs)}
    print(table(runs))
    draw(runs, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    tyro.cli(main)
