"""Steps a Brax task by hand: many robots at once, each with a policy of its own, one call per step.

    python scripts/examples/brax_by_hand.py --task hopper_uni --robots 64

`task.reset` and `task.step` are pure functions of one robot: `jax.vmap` makes them functions of many, and `jax.jit`
makes programs of those.
"""

import jax
import jax.numpy as jnp
import tyro

import asciime_gym as ag
from asciime_gym._process import keep_programs


def main(task: str = "hopper_uni", robots: int = 64, steps: int = 250, seed: int = 0):
    keep_programs()  # for the next time: a robot takes a while to compile
    robot = ag.make_task(task, policy=ag.MapElites.default_policy)
    keys = jax.random.split(jax.random.key(seed), 2 * robots)
    genotypes = jax.lax.map(robot.policy.init, keys[:robots])
    state = jax.jit(jax.vmap(robot.reset))(keys[robots:])

    @jax.jit
    def step(state, alive, total):
        action = jax.vmap(robot.policy.act)(genotypes, state.observation)
        state = jax.vmap(robot.step)(state, action)
        total += jnp.where(alive, state.reward, 0.0)
        return state, alive & ~state.terminated, total

    alive, total = jnp.ones(robots, bool), jnp.zeros(robots)
    for t in range(steps):
        state, alive, total = step(state, alive, total)
        if t % 50 == 0 or t == steps - 1:
            print(f"step {t + 1}: {int(alive.sum())} of {robots} stand, mean reward so far {float(total.mean()):.2f}")
    best = int(total.argmax())
    print(f"best: robot {best} with {float(total[best]):.1f}, descriptor of its last step {state.descriptor[best]}")


if __name__ == "__main__":
    tyro.cli(main)
