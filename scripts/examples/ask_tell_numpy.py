"""Ask and tell with a NumPy function: a planar arm that should bend little and reach everywhere.

    python scripts/examples/ask_tell_numpy.py

No simulator, and nothing of JAX on your side: genotypes come as NumPy arrays, evaluations go back as such.
"""

from pathlib import Path

import numpy as np
import tyro

import asciime_gym as ag

JOINTS = 6


def evaluate(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fitness `[batch]`: how evenly the arm is bent; descriptor `[batch, 2]`: where its hand is."""
    bent = np.tanh(angles)
    direction = np.cumsum(np.pi * bent, axis=1)
    hand = np.stack([np.cos(direction).mean(axis=1), np.sin(direction).mean(axis=1)], axis=1)
    return 1 - bent.var(axis=1), hand


def main(generations: int = 100, batch_size: int = 128, seed: int = 0, out: Path = Path("runs/arm.h5")):
    # A network without hidden layers and with one constant input: its weights and biases are the angles.
    policy = ag.MLP(1, JOINTS, hidden=(), weights="lecun_uniform")
    problem = ag.Problem(policy=policy, descriptor_low=[-1, -1], descriptor_high=[1, 1], episode_length=1)
    algorithm = ag.MapElites(batch_size=batch_size, sigma1=0.1, sigma2=0.3)
    optimizer = ag.Optimizer(algorithm, problem, seed=seed, centroids=512)
    for generation in range(generations):
        genotypes = optimizer.ask()
        fitness, descriptor = evaluate(genotypes[:, :JOINTS] + genotypes[:, JOINTS:])
        feedback = optimizer.tell(fitness, descriptor)
        if generation % 20 == 0:
            print(f"generation {generation}: {feedback.added.sum()} newcomers, {optimizer.history}")
    out.parent.mkdir(parents=True, exist_ok=True)
    optimizer.save(out)
    print(optimizer.archive)
    print("closest to (0.5, 0.5):", optimizer.archive.nearest([0.5, 0.5]))


if __name__ == "__main__":
    tyro.cli(main)
