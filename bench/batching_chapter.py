"""The serving chapter's case in its own figures, and what must be true for them to hold together."""

from bench.batching_sim import Batching, Device, Policy

# As the chapter gives them, at peak.
BUSY = 0.6
BATCH = 6
MAX_BATCH = 32
EXECUTION_MS = 8.0
WAITING_MS = 40.0
P99_MS = 200.0
BOLDER_P99_MS = 45.0
BOLDER_GAIN = 1.4
BOUND_MS = 50.0  # its P99 off peak, taken as the bound
TIMID = Batching(Policy.SEAL_EARLY, MAX_BATCH, 2.0)
BOLDER = Batching(Policy.SEAL_EARLY, MAX_BATCH, 8.0, (8, 16))

# What follows from them.
RATE = BUSY * BATCH / EXECUTION_MS * 1e3
WAITING = RATE * WAITING_MS / 1e3
BURST_RATE = (BATCH - 1) / TIMID.max_queue_delay_ms * 1e3
DUTY = RATE / BURST_RATE
SMOOTH_WAIT_MS = BUSY / (1 - BUSY) * EXECUTION_MS / 2
SMOOTH_BATCH = 1 + RATE * TIMID.max_queue_delay_ms / 1e3

# What it leaves open: round numbers, chosen once. A step of 6 takes the chapter's 8 ms.
DEVICE = Device(step_ms=5.0, item_ms=0.5)
BURST_S = 0.02
DURATION_S = 60.0
GREEDY = Batching(Policy.JOIN_LATE, MAX_BATCH)


def traffic() -> list[str]:
    """The model in words, and the two policies."""
    return [
        f"A step takes {DEVICE.step_ms:g} ms and {DEVICE.item_ms:g} ms per request; batches of up to {MAX_BATCH}; one "
        "step per request.",
        f"Arrivals are Poisson within bursts of {BURST_S * 1e3:g} ms on average, {DUTY:.0%} of the time, and none come "
        "between. At another rate it is the same trace with fewer or more of its requests.",
        "seal-early: a batch is closed max_queue_delay after its first request, or at a preferred size, and then waits "
        "in line; nothing joins it. join-late: it stays open until a device takes it; greedy is that without a delay.",
    ]


def implications() -> list[str]:
    """Where the figures contradict each other, and what resolves it."""
    step_ms = DEVICE.step_ms + DEVICE.item_ms * SMOOTH_BATCH
    devices, delay = RATE / SMOOTH_BATCH * step_ms / 1e3, f"{TIMID.max_queue_delay_ms:g} ms"
    return [
        f"{BUSY:.0%} busy with batches of {BATCH} in {EXECUTION_MS:g} ms steps is {RATE:g} requests/s.",
        f"{WAITING_MS:g} ms of waiting at {RATE:g}/s is {WAITING:g} requests in line (Little's law). A device that "
        f"takes what waits would take {WAITING:g} of {MAX_BATCH} at once, not {BATCH}: batches must be sealed before "
        "they run.",
        f"Batches that come at random to a device {BUSY:.0%} busy with {EXECUTION_MS:g} ms steps wait "
        f"{SMOOTH_WAIT_MS:g} ms on average (M/D/1), not {WAITING_MS:g}: arrivals must be bursty.",
        f"So says the batch, too: at an even {RATE:g}/s a delay of {delay} gathers {SMOOTH_BATCH:.1f} requests, and "
        f"steps that small would need {devices:.2f} devices. {BATCH} within {delay} is {BURST_RATE:,.0f}/s, for "
        f"{DUTY:.0%} of the time.",
        f"Within a burst the device is then always busy; {BUSY:.0%} is a mean that counts the silence between bursts, "
        "which hardly a request sees.",
    ]
