"""Which settings to try next: first steps of a single knob, then what a model of the scores holds to be better.

The model is Optuna's Tree-structured Parzen Estimator (Bergstra et al. 2011), asked and told one point at a time.
Random points would change all knobs at once, and where the settings are good already, most such points are worse.
"""

import random
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial, TrialState

from bench.tune.space import Changes, Knob, Space, key

# To propose what has not been proposed before: by the model, which may insist on what it knows, then by chance.
MODEL_ATTEMPTS, ATTEMPTS = 20, 200


class Proposer:
    """Proposes changes over those that hold, none twice. Equal seeds and scores give equal ones."""

    def __init__(self, space: Space, seed: int, steps: int, over: Changes | None = None) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=steps)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._space = space
        self._distributions = {knob.name: _distribution(knob) for knob in space.knobs}
        self._over = over or {}
        self._seen = {key(self._over)}
        self._asked: dict[bytes, Trial] = {}
        self._rng = random.Random(seed)
        for point in _spread(space, self._rng, steps):
            self._enqueue(point)

    def ask(self) -> Changes | None:
        """None when everything has been proposed, as far as can be seen."""
        for attempt in range(ATTEMPTS):
            if attempt >= MODEL_ATTEMPTS:
                self._enqueue([self._rng.randrange(len(knob.choices)) for knob in self._space.knobs])
            trial = self._study.ask(self._distributions)
            point = [trial.params[knob.name] for knob in self._space.knobs]
            changes = {**self._over, **self._space.changes(point)}
            if key(changes) not in self._seen:
                self._seen.add(key(changes))
                self._asked[key(changes)] = trial
                return changes
            self._study.tell(trial, state=TrialState.FAIL)  # the model has its score already
        return None

    def _enqueue(self, point: Sequence[int]) -> None:
        self._study.enqueue_trial({knob.name: index for knob, index in zip(self._space.knobs, point, strict=True)})

    def tell(self, changes: Changes, score: float) -> None:
        """The higher the better. Raises KeyError for what was not asked."""
        self._study.tell(self._asked.pop(key(changes)), score)


def _distribution(knob: Knob) -> BaseDistribution:
    if knob.ordered:
        return IntDistribution(0, len(knob.choices) - 1)
    return CategoricalDistribution(list(range(len(knob.choices))))


def _spread(space: Space, rng: random.Random, count: int) -> Sequence[tuple[int, ...]]:
    """Steps in chance's order, of each knob once before any knob twice."""
    left = space.steps()
    chosen: list[tuple[int, ...]] = []
    rng.shuffle(left)
    while left and len(chosen) < count:
        moved: set[int] = set()
        for point in list(left):
            (knob,) = [at for at, (index, now) in enumerate(zip(point, space.now, strict=True)) if index != now]
            if knob not in moved:
                moved.add(knob)
                left.remove(point)
                chosen.append(point)
    return chosen[:count]
