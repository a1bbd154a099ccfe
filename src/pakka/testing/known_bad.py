"""A sink that people write, and that does not keep the contract: for the compliance table.

It does what its kind really does. `FakeReceiver` is a web server, and its receiving end is not a real service.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

from pakka.contract.audit import AUDIT_ID
from pakka.contract.sink import Ledger
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Outcome
from pakka.model.prepared import Prepared

_ANSWER_S = 10.0
_WORK_S = 0.002


class FakeReceiver:
    """A receiver of webhooks on this machine: keeps what is posted to each path, in order, doubles included."""

    def __init__(self) -> None:
        self.received: dict[str, list[Any]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self.received))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/refunds"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(received: dict[str, list[Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """POST keeps a row, GET gives them all back, DELETE forgets the path."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(_WORK_S)
            received.setdefault(self.path, []).append(body)
            self._answer(b"")

        def do_GET(self) -> None:
            self._answer(json.dumps(received.get(self.path, [])).encode())

        def do_DELETE(self) -> None:
            received.pop(self.path, None)
            self._answer(b"")

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _request(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@dataclass(frozen=True)
class NaiveWebhookSink:
    """POST each row to a URL when the epoch is committed, with no idempotency key, as in most `foreachBatch` functions."""

    url: str

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(
            Level.AT_LEAST_ONCE, Way.SPOOLED, "a receiver that remembers no key takes every request anew"
        )

    def target(self) -> str:
        return self.url

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> _RowsWriter:
        return _RowsWriter(slot)

    def open_committer(self, binding: Binding, fence: int) -> _WebhookCommitter:
        return _WebhookCommitter(self.url)

    def scratch(self, token: str) -> _WebhookScratch:
        return _WebhookScratch(replace(self, url=f"{self.url}-audit-{token}"))

    def scratch_tokens(self) -> Sequence[str]:
        return ()


class _RowsWriter:
    """Keeps a slot's rows in the prepared record."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()

    def prepare(self, checksum: str) -> Prepared:
        return Prepared(self.slot, len(self.rows), checksum, {"rows": self.rows})

    def discard(self) -> None:
        self.rows.clear()


class _Forgetful:
    """What a committer does for a system that keeps neither fence nor ledger."""

    def raise_fence(self) -> bool:
        return True

    def abort(self, prepared: Sequence[Prepared]) -> None:
        """There is nothing that it could undo."""

    def pending(self) -> Sequence[Prepared]:
        return ()

    def ledger(self) -> Ledger:
        return Ledger(0, None, keeps_epochs=False)

    def close(self) -> None:
        """It holds nothing."""


class _WebhookCommitter(_Forgetful):
    def __init__(self, url: str) -> None:
        self.url = url

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        for record in prepared:
            for row in record.detail["rows"]:
                _request("POST", self.url, row)
        return COMMITTED


@dataclass(frozen=True)
class _WebhookScratch:
    """A path of its own on the receiver."""

    sink: NaiveWebhookSink

    def make(self) -> None:
        _request("GET", self.sink.url)

    def read(self) -> list[str]:
        return [row[AUDIT_ID] for row in _request("GET", self.sink.url)]

    def stored(self) -> frozenset[str]:
        return frozenset()

    def remove(self) -> None:
        _request("DELETE", self.sink.url)
