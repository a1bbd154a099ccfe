"""The figures of a run over HTTP, in Prometheus' text format. The one module that knows prometheus-client.

It has a registry of its own: what other libraries of the process register globally is not ours to tell.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from itertools import accumulate
from urllib.request import ProxyHandler, build_opener
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pakka.errors import UsageError
from pakka.observe.catalogue import Kind
from pakka.observe.figures import Figures, Reading

_EVERYWHERE = ("0.0.0.0", "::", "")
_PATIENCE_S = 2.0

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""Values by the name of a metric, and by its labels other than the pipeline."""


class _Collector(Collector):
    """Reads the figures when somebody asks for them, and not before."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures

    def collect(self) -> Iterable[Metric]:
        for reading in self.figures.read():
            yield _family(reading, self.figures.pipeline)


def registry_of(figures: Figures) -> CollectorRegistry:
    """A registry that holds these figures and nothing else."""
    registry = CollectorRegistry()
    registry.register(_Collector(figures))
    return registry


@contextmanager
def serve(figures: Figures, address: str, port: int) -> Iterator[str]:
    """Serve them while the block runs. Gives the URL; port 0 means any that is free."""
    try:
        server, thread = start_http_server(port, address, registry_of(figures))
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"metrics cannot be served at {address}:{port}: {error}; nothing was started",
            hint="choose another port, or `--metrics-port 0` for any that is free",
        ) from error
    try:
        yield _url(address, server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetch(url: str, pipeline: str) -> Samples | None:
    """What a run of this pipeline serves now; None if nobody answers, or somebody else does."""
    try:
        # Not through a proxy, which would look for this machine's own address at home.
        with build_opener(ProxyHandler({})).open(url, timeout=_PATIENCE_S) as answer:
            text = answer.read().decode()
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {**sample.labels}
                if labels.pop("pipeline", None) == pipeline:
                    found.setdefault(sample.name, {})[tuple(sorted(labels.items()))] = sample.value
    except (HTTPException, OSError, ValueError):
        return None
    return found or None


def _url(address: str, server: WSGIServer) -> str:
    host = socket.gethostname() if address in _EVERYWHERE else address
    return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"


def _family(reading: Reading, pipeline: str) -> Metric:
    metric = reading.metric
    told = (metric.name, metric.meaning)
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(*told, labels=metric.labels)
        for labels, spread in reading.spreads.items():
            edges = [*(str(edge) for edge in metric.buckets), "+Inf"]
            counts = zip(edges, map(float, accumulate(spread.counts)), strict=True)
            histogram.add_metric([pipeline, *labels], list(counts), spread.total)
        return histogram
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(*told, labels=metric.labels)
    for labels, value in reading.values.items():
        family.add_metric([pipeline, *labels], value)
    return family
