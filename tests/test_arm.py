"""A user's own evaluator, with no JAX in it: a planar arm that has to reach everywhere."""

import numpy as np

import asciime_gym as ag

JOINTS = 4


def evaluate(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fitness: little bending (low variance of the angles). Descriptor: where the hand is."""
    reach = np.cumsum(np.pi * np.tanh(angles), axis=1)
    hand = np.stack([np.cos(reach).mean(axis=1), np.sin(reach).mean(axis=1)], axis=1)
    return 1 - np.tanh(angles).var(axis=1), hand


def test_map_elites_covers_the_arms_reach():
    # One observation that is always 1 and no hidden layer: the biases and weights are the angles.
    arm = ag.MLP(1, JOINTS, hidden=(), weights="lecun_uniform")
    problem = ag.Problem(policy=arm, descriptor_low=[-0.7, -0.7], descriptor_high=[0.7, 0.7], episode_length=1)
    optimizer = ag.Optimizer(ag.MapElites(batch_size=128, sigma1=0.1, sigma2=0.3), problem, centroids=256)
    for _ in range(80):
        genotypes = optimizer.ask()
        angles = genotypes[:, :JOINTS] + genotypes[:, JOINTS:]
        fitness, descriptor = evaluate(angles)
        optimizer.tell(fitness, descriptor)
    archive = optimizer.archive
    assert archive.coverage > 0.9
    # The elites are where they say they are, and act as they should.
    hand = evaluate(np.stack([archive.policy(i)(np.ones(1)) for i in range(5)]))[1]
    np.testing.assert_allclose(hand, archive.descriptor[:5], atol=1e-5)
