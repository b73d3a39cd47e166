"""Wrong kinds of arguments, as a user meets them: without the type checks that the other tests run under."""

import subprocess
import sys

import pytest

CASES = {
    "ag.Optimizer('ascii_me', problem)": "asciime_gym.AsciiME()",
    "ag.Optimizer(ag.MapElites(), 'hopper_uni')": "make_task",
    "ag.Optimizer(ag.MapElites(), problem, seed=0.5)": "seed must be a whole number",
    "ag.Optimizer(ag.MapElites(), problem).fit(evaluations=2.5)": "evaluations must be a whole number",
    "ag.AsciiME(targets='moon')": "targets must be one of ['buffer', 'archive']; got 'moon'",
    "ag.MLP(5, 2, activation='sigmoid')": "activation must be one of ('tanh', 'relu')",
    "ag.MLP(5, 2.5)": "at least 1",
    "ag.make_task('hoper_uni')": "the tasks are ant_omni, anttrap_omni, walker2d_uni, hopper_uni, ant_uni",
    "ag.make_task('hopper_uni', backend='bullet')": "backends are spring, positional, generalized, mjx",
    "ag.make_task('hopper_uni', policy=lambda o, a: ag.MLP(3, 3))": "observation size 12 and action size 3",
    "ag.make_task('hopper_uni', episode_length=0)": "episode_length",
}


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """What each case says, all from one process."""
    code = "import asciime_gym as ag\nproblem = ag.Problem(policy=ag.MLP(2, 1), descriptor_low=[0], "
    code += "descriptor_high=[1], episode_length=3)\n"
    for case in CASES:
        code += f"try:\n    {case}\n    print('nothing')\n"
        code += "except (ValueError, TypeError) as error:\n    print(str(error).replace(chr(10), ' '))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_error_says_how_to_mend_it(case, answers):
    assert CASES[case] in answers[case]
