"""One figure with an interval, of trials that met or missed: at which rate a run meets its objectives as often as not.

The share of runs that meet them falls with the rate as a logistic function of its logarithm. What is not known, the
rate at one half and the steepness there, is put on a grid; the likelihood of all trials at each of its points gives the
posterior, and its quantiles the interval. This is how thresholds are found in psychophysics (Kontsevich and Tyler 1999,
"Bayesian adaptive estimation of psychometric slope and threshold"), and unlike a fit it holds for few trials, and for
those that are told apart without a single mistake.

The figure is that of runs as long as these. Short ones can meet a limit at a rate that would break it later: see
`saturation.rising`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from bench.search.trial import Trial

CONFIDENCE = 0.95
# Of the logistic in the logarithm of the rate; all are held equally likely on a logarithmic scale. Between nine runs of
# ten that meet and one of ten lies a factor of 9 at the first, and 2 % at the last.
STEEPNESSES = np.geomspace(2.0, 200.0, 40)
RATES = 600
# The rate at one half is looked for this far beyond those that were tried, in its logarithm.
MARGIN = 0.2

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Requests/s: the median of the posterior, and the interval that holds `confidence` of it."""

    rate: float
    low: float
    high: float
    trials: int
    confidence: float = CONFIDENCE

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def estimate(trials: Sequence[Trial], confidence: float = CONFIDENCE) -> Estimate | None:
    """None when every trial came out alike: the edge is then beyond them, and how far isn't known."""
    if len({trial.met for trial in trials}) < 2:
        return None
    tried = np.log([trial.rate for trial in trials])
    halves = np.linspace(tried.min() - MARGIN, tried.max() + MARGIN, RATES)
    posterior = _posterior(tried, np.array([trial.met for trial in trials]), halves)
    tail = (1 - confidence) / 2
    low, rate, high = np.exp(np.interp([tail, 0.5, 1 - tail], np.cumsum(posterior), halves))
    return Estimate(float(rate), float(low), float(high), len(trials), confidence)


def _posterior(tried: Floats, met: NDArray[np.bool_], halves: Floats) -> Floats:
    """Of each of `halves`, whatever the steepness; they sum to one."""
    logits = STEEPNESSES[:, None, None] * (halves[:, None] - tried)
    likelihoods = np.where(met, -np.logaddexp(0, -logits), -np.logaddexp(0, logits)).sum(axis=-1)
    weights = np.exp(likelihoods - likelihoods.max()).sum(axis=0)
    posterior: Floats = weights / weights.sum()
    return posterior


def percentile_interval(
    values: Sequence[float], percent: float, *, confidence: float = CONFIDENCE, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Of a percentile of values in the order in which they arose: moving-blocks bootstrap (Künsch 1989).

    Neighbours waited in the same queue, so that resampling them one by one would make too little of the noise. Blocks
    have the cube root of the values' number, the rate at which they should grow (Hall, Horowitz and Jing 1995).
    """
    found, count = np.asarray(values, dtype=np.float64), len(values)
    length = max(1, round(count ** (1 / 3)))
    starts = np.random.default_rng(seed).integers(0, count - length + 1, (resamples, -(-count // length)))
    chosen = (starts[:, :, None] + np.arange(length)).reshape(resamples, -1)[:, :count]
    percentiles = np.percentile(found[chosen], percent, axis=1)
    low, high = np.quantile(percentiles, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
