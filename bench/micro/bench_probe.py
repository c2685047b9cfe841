"""What the step probe costs: µs per step of its hooks in the engine's processes, and of its reader in the server's.

    python -m bench.micro.bench_probe --sequences 1 32 256

Hooks and rings are the real ones; what they wrap does nothing, so what is left is the probe. The same loop without the
probe is taken off. Prints one JSON line per number of sequences.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from sampling.probe import core
from sampling.probe.marks import HostTimer, Place
from sampling.probe.records import CORE_RING, WORKER_RING, CoreRecord, WorkerRecord
from sampling.probe.ring import RingWriter
from sampling.probe.worker import WorkerProbe
from server.engine.steps import StepFeed
from server.telemetry.engine_steps import EngineSteps

STEPS = 500  # fewer than a ring has slots


class Loop:
    """A scheduling loop whose every part does nothing."""

    def __init__(self, sequences: int) -> None:
        names = [f"request-{number}" for number in range(sequences)]
        self.output = SimpleNamespace(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(req_ids=names, num_output_tokens=[5] * sequences),
            num_scheduled_tokens=dict.fromkeys(names, 1),
            total_num_scheduled_tokens=sequences,
        )
        self.outputs = {0: SimpleNamespace(timestamp=1.0)}

        class Scheduler:
            running = waiting = names
            max_num_running_reqs = 256
            kv_cache_manager: Any = SimpleNamespace(usage=0.5)

            def schedule(_, throttle_prefills: bool = False) -> Any:
                return self.output

            def get_grammar_bitmask(_, output: Any) -> None:
                return None

            def update_from_output(_, output: Any, result: Any) -> Any:
                return self.outputs

        class Core:
            def has_work(_) -> bool:
                return True

            def _process_input_queue(_) -> None:
                return None

            def _handle_client_request(_) -> None:
                return None

        self.classes: tuple[Any, Any] = (Scheduler, Core)

    def run(self, work: Callable[[Any], None]) -> float:
        """µs per step."""
        scheduler, loop = (made() for made in self.classes)
        began = perf_counter_ns()
        for _ in range(STEPS):
            loop._process_input_queue()
            output = scheduler.schedule(False)
            scheduler.get_grammar_bitmask(output)
            work(output)
            scheduler.update_from_output(output, None)
        return (perf_counter_ns() - began) / STEPS / 1e3


def measure(sequences: int, folder: Path) -> dict[str, float]:
    feed = StepFeed(folder, EngineSteps().add)
    bare = Loop(sequences).run(lambda output: None)
    hooked = Loop(sequences)
    core.install(core.CoreProbe(RingWriter(folder / CORE_RING, len(CoreRecord._fields))), *hooked.classes)
    worker = WorkerProbe(RingWriter(folder / WORKER_RING, len(WorkerRecord._fields)), HostTimer())
    both = hooked.run(lambda output: _worker_step(worker, output.streamgauge_step))
    began = perf_counter_ns()
    feed.read(0)
    reading = (perf_counter_ns() - began) / STEPS / 1e3
    return {"engine_us": both - bare, "server_us": reading}


def _worker_step(probe: WorkerProbe, number: int) -> None:
    probe.begin(number)
    for place in (Place.FORWARD, Place.FORWARD_END):
        probe.mark(place)
    probe.executed(over=False)
    for place in (Place.SAMPLE, Place.SAMPLE_END):
        probe.mark(place)
    probe.sampled(None, perf_counter_ns())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.micro.bench_probe", description=__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args(argv)
    for sequences in args.sequences:
        runs = []
        for _ in range(args.repeat):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(measure(sequences, Path(folder)))
        figures = {
            name: {"median": statistics.median(run[name] for run in runs), "min": min(run[name] for run in runs)}
            for name in runs[0]
        }
        print(json.dumps({"sequences": sequences, **figures}))


if __name__ == "__main__":
    main()
