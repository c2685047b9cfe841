"""GPU series, from a driver that is not there: as recorded from nvidia-ml-py's interface."""

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from server.telemetry.device import DeviceSeries


class Driver:
    """Two devices, the second of which has no figures."""

    class NVMLError(Exception):
        pass

    def __init__(self, devices: int = 2) -> None:
        self.devices = devices

    def nvmlInit(self) -> None:
        if not self.devices:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        if device:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=87, memory=41)

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(used=3 * 2**30, total=80 * 2**30)


def text(driver: Driver) -> str:
    registry = CollectorRegistry()
    registry.register(DeviceSeries(driver))
    return generate_latest(registry).decode()


def test_each_device_with_figures_has_its_series() -> None:
    found = text(Driver())
    assert 'streamgauge_gpu_utilization_ratio{gpu="0"} 0.87' in found
    assert 'streamgauge_gpu_memory_bandwidth_ratio{gpu="0"} 0.41' in found
    assert 'streamgauge_gpu_memory_used_bytes{gpu="0"} 3.221225472e+09' in found
    assert 'gpu="1"' not in found


def test_without_a_driver_there_is_nothing() -> None:
    assert text(Driver(devices=0)) == ""
