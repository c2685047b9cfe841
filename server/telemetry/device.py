"""What NVIDIA's driver says of the GPUs: a figure beside effective utilization, never instead of it. Not run here."""

import importlib
from collections.abc import Iterable
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


def device_series() -> "list[DeviceSeries]":
    """One collector where nvidia-ml-py is installed (the `gpu` extra), else none."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return []
    return [DeviceSeries(nvml)]


class DeviceSeries(Collector):
    """Asks at each scrape. `nvml` is the module `pynvml`; without a driver there are no series."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._devices = _devices(nvml)

    def collect(self) -> Iterable[Metric]:
        if not self._devices:
            return
        utilization = _family("utilization_ratio", "Share of the last sample period with a kernel running.")
        bandwidth = _family("memory_bandwidth_ratio", "Share of the last sample period with memory read or written.")
        used = _family("memory_used_bytes", "Device memory in use.")
        total = _family("memory_bytes", "Device memory.")
        for index, device in enumerate(self._devices):
            label = (str(index),)
            try:
                rates = self._nvml.nvmlDeviceGetUtilizationRates(device)
                memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
            except self._nvml.NVMLError:  # a device that is lost, or shared out so that it has no figures
                continue
            utilization.add_metric(label, rates.gpu / 100)
            bandwidth.add_metric(label, rates.memory / 100)
            used.add_metric(label, memory.used)
            total.add_metric(label, memory.total)
        yield from (utilization, bandwidth, used, total)


def _devices(nvml: Any) -> list[Any]:
    try:
        nvml.nvmlInit()
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []


def _family(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"streamgauge_gpu_{name}", documentation, labels=("gpu",))
