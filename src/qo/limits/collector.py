"""The numbers of limiters for `prometheus_client`, which asks for them whenever it is scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from qo.errors import SettingsError
from qo.limits.metrics import BY_GROUP, OF_ALL, Sample, Series

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError:
    raise SettingsError(
        "A collector needs the library of Prometheus; install it with: pip install 'qo-queue[server]'."
    ) from None

Family = CounterMetricFamily | GaugeMetricFamily
SECONDS = "seconds"


class LimiterCollector(Collector):
    """To be registered once in a registry. Made by `Limiter.collector` and `Limiter.collector_of`."""

    def __init__(
        self, own_labels: Sequence[str], limiters: Mapping[tuple[str, ...], Callable[[], Iterable[Sample]]]
    ) -> None:
        """`limiters` has each limiter's samples by the values of `own_labels`. A single limiter needs no labels.

        All limiters are in one collector, because samples of one name must stand together in the text that is scraped.
        """
        self._own_labels = own_labels
        self._limiters = limiters

    def collect(self) -> list[Family]:
        """The numbers of a limiter are of the same instant. Every name is listed, also without a sample."""
        families = {series.name: self._family(series, ["group"]) for series in BY_GROUP}
        families |= {series.name: self._family(series, []) for series in OF_ALL}
        for own_values, samples in self._limiters.items():
            for sample in samples():
                families[sample.name].add_metric([*own_values, *sample.labels.values()], sample.value)
        return list(families.values())

    def describe(self) -> list[Family]:
        """Lets a registry refuse a second collector, whose samples would stand apart from those of the first."""
        return self.collect()

    def _family(self, series: Series, labels: list[str]) -> Family:
        family = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
        unit = SECONDS if SECONDS in series.name.split("_") else ""
        return family(series.name.removesuffix("_total"), series.help, labels=[*self._own_labels, *labels], unit=unit)
