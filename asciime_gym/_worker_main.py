"""What a worker process of ours runs, and what it may keep: environments, or a function of the user's.

As a script it takes requests from its standard input and answers on its standard output. It must import nothing of this
package, so that a worker starts without JAX.
"""

import contextlib
import os
import pickle
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LENGTH = struct.Struct("<Q")  # before every message: its bytes


class Environments:
    """A few environments, of which any may be reset and stepped by itself.

    **Arguments:**

    - `make`: makes an environment.
    - `count`: how many.
    - `reuse`: whether an environment plays one episode after the other; else each episode gets a new one.
    - `info_names`: the entries of a step's info to pass on; `None`: all.
    """

    def __init__(self, make: Callable[[], Any], count: int, reuse: bool, info_names: tuple[str, ...] | None):
        self._make, self._reuse, self._info_names = make, reuse, info_names
        self._envs: list[Any] = [make() if reuse else None for _ in range(count)]

    def reset(self, places: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
        """First observations, float32 `[places, obs]`."""
        seen = []
        for place, seed in zip(places, seeds, strict=True):
            if not self._reuse:
                self._close(place)
                self._envs[place] = self._make()
            seen.append(self._envs[place].reset(seed=int(seed))[0])
        return _rows(seen)

    def step(self, places: Sequence[int], actions: np.ndarray) -> tuple[Any, ...]:
        """Observations, rewards, terminations and truncations as arrays, and a list of infos; one row per place."""
        steps = [self._envs[place].step(action) for place, action in zip(places, actions, strict=True)]
        seen, rewards, terminated, truncated, infos = zip(*steps, strict=True)
        return (
            _rows(seen),
            np.array(rewards, np.float64),
            np.array(terminated, bool),
            np.array(truncated, bool),
            [self._chosen(info) for info in infos],
        )

    def _chosen(self, info: dict[str, Any]) -> dict[str, Any]:
        return info if self._info_names is None else {name: info[name] for name in self._info_names if name in info}

    def _close(self, place: int):
        if self._envs[place] is not None:
            self._envs[place].close()

    def close(self):
        for place in range(len(self._envs)):
            self._close(place)


def _rows(observations: Sequence[Any]) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and the row refused as such
        return np.stack([np.asarray(seen).astype(np.float32).ravel() for seen in observations])


def send(stream: Any, message: bytes):
    stream.write(LENGTH.pack(len(message)) + message)
    stream.flush()


def receive(stream: Any) -> bytes | None:
    """The next message; `None` where the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


def _serve(requests: Any, answers: Any):
    """Does what it is asked until nobody asks any more: an answer is (True, result) or (False, traceback)."""
    kept: Any = None
    while (request := receive(requests)) is not None:
        try:
            name, arguments = pickle.loads(request)
            if name == "open":  # what to keep
                search_path, kind, packed = arguments
                sys.path[:] = search_path
                parts = pickle.loads(packed)
                kept, answer = Environments(*parts) if kind == "environments" else parts, None
            else:
                answer = (kept if name == "call" else getattr(kept, name))(*arguments)
            reply = _packed((True, answer))
        except Exception:
            reply = _packed((False, traceback.format_exc()))
        send(answers, reply)
    if isinstance(kept, Environments):
        kept.close()


def _packed(answer: Any) -> bytes:
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception:  # of a class from the user's script, say, which is not in this process
        import cloudpickle

        return cloudpickle.dumps(answer)


def _not_alone(parent: int):
    """Ends this process soon after its parent, whatever it is busy with."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(5.0)  # enough to close what it keeps, if it is idle
    os._exit(1)


def _main():
    """Keeps the two streams for itself: what an environment prints goes to standard error."""
    threading.Thread(target=_not_alone, args=(os.getppid(),), daemon=True).start()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for the answer any more
        _serve(requests, answers)


if __name__ == "__main__":
    _main()
