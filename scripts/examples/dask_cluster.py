"""ASCII-ME with a simulator that is not JAX, on a Dask cluster: a boat that should go everywhere with little effort.

    python scripts/examples/dask_cluster.py                                  # workers on this machine
    python scripts/examples/dask_cluster.py --address tcp://scheduler:8786   # a cluster that is there

Needs the extra `dask`. Workers are sent `sail` below and one genotype at a time; they need NumPy, and nothing of ours.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tyro

import asciime_gym as ag

STEPS, HIDDEN = 60, 16


def sail(genotype: np.ndarray) -> tuple[float, np.ndarray, dict[str, Any]]:
    """One voyage: its fitness, where it ends, and its trajectory, which ASCII-ME learns from."""
    # The genotype of an MLP holds, layer by layer, the weights [inputs, outputs] and then the biases.
    w1, b1, w2, b2 = np.split(genotype, np.cumsum([5 * HIDDEN, HIDDEN, HIDDEN * 2]))
    w1, w2 = w1.reshape(5, HIDDEN), w2.reshape(HIDDEN, 2)
    place, velocity = np.zeros(2), np.zeros(2)
    seen, done, got = [], [], []
    for t in range(STEPS):
        observation = np.concatenate([place, velocity, [1 - t / STEPS]])
        action = np.tanh(observation @ w1 + b1) @ w2 + b2
        thrust = np.clip(action, -1, 1)
        velocity = 0.9 * velocity + 0.02 * thrust + [0.0, 0.004 * np.sin(3 * place[0])]  # drag, and a current
        place = place + velocity
        seen.append(observation)
        done.append(action)
        got.append(2 - np.square(thrust).sum())
    path = {"observation": np.array(seen), "action": np.array(done), "reward": np.array(got)}
    return float(np.sum(got)), place, path


def main(
    generations: int = 40,
    batch_size: int = 128,
    workers: int = 2,
    address: str | None = None,
    seed: int = 0,
    out: Path = Path("runs/boat.h5"),
):
    from distributed import Client, LocalCluster

    policy = ag.MLP(5, 2, hidden=(HIDDEN,))
    problem = ag.Problem(policy=policy, descriptor_low=[-6, -6], descriptor_high=[6, 6], episode_length=STEPS)
    optimizer = ag.Optimizer(ag.AsciiME(batch_size=batch_size), problem, seed=seed, centroids=512)
    cluster = None if address else LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
    try:
        with Client(address or cluster) as client:
            evaluate = ag.map_evaluator(sail, client.get_executor(), retries=2, episode_length=STEPS)
            for generation in range(generations):
                optimizer.tell(*evaluate(optimizer.ask()))
                if generation % 10 == 0 or generation == generations - 1:
                    print(f"generation {generation}: {optimizer.history}", flush=True)
    finally:
        if cluster is not None:
            cluster.close()
    out.parent.mkdir(parents=True, exist_ok=True)
    optimizer.save(out)
    print(optimizer.archive)


if __name__ == "__main__":
    tyro.cli(main)
