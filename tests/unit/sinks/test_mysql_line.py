"""Lines to a MySQL server: who gets in, who may not, and a server that asks for what it has no right to."""

import socket
import ssl
import threading
from contextlib import closing, suppress

import pytest

from pakka.errors import SinkError, UnavailableError
from pakka.sinks import _mysql_line
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_line import Address, DriverError, Line, StrangeServer
from tests.fixtures.mysql import PASSWORD, database_of, need_binaries, running_server
from tests.unit.sinks.mysql_kit import Site, rows

pytestmark = pytest.mark.mysql


class Rogue:
    """Stands before the server and, at a statement, asks the client for one of its files instead of passing it on."""

    def __init__(self, port: int, statement: bytes, file: bytes = b"/etc/passwd") -> None:
        self.statement, self.file = statement, file
        self.got = b""
        self.upstream = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.upstream))
                threading.Thread(target=self._answers, args=(client, server), daemon=True).start()
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.statement not in data:
                    server.sendall(data)
                    continue
                packet = b"\xfb" + self.file
                client.sendall(bytes([len(packet), 0, 0, 1]) + packet)
                while data := client.recv(65536):
                    self.got += data
        client.close()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()


@pytest.mark.parametrize(
    ("statement", "send"),
    [
        (b"LOAD DATA", lambda line: line.load("INTO TABLE refund", [memoryview(b"1\n")])),
        (b"SELECT 7", lambda line: line.ask("SELECT 7")),
    ],
    ids=["as rows are sent", "at any other time"],
)
def test_a_server_that_asks_for_a_file_of_this_machine_gets_nothing(mysql_server, mysql_url, statement, send):
    with closing(Rogue(mysql_server.port, statement)) as rogue:
        line = Line(Address.parse(mysql_server.url(database_of(mysql_url), rogue.port)), 5)
        with pytest.raises(StrangeServer, match="asked for a file of this machine; nothing was sent"):
            send(line)
        assert not line.is_open
        assert rogue.got == b""


def test_a_writer_tells_of_such_a_server(mysql_server, mysql_url, tmp_path, monkeypatch):
    monkeypatch.setattr(Line, "takes_bulk", False)
    Site.of(mysql_url, tmp_path, way="prepared").driver().close()
    with closing(Rogue(mysql_server.port, b"LOAD DATA")) as rogue:
        site = Site.of(mysql_server.url(database_of(mysql_url), rogue.port), tmp_path, way="prepared")
        with pytest.raises(SinkError, match="asked for a file") as refused:
            site.prepare(site.slot(0), rows(id=[1]))
        assert "ssl_ca" in refused.value.hint
        assert rogue.got == b""


def test_a_wrong_password_a_missing_database_and_a_missing_right_say_what_to_do(mysql_server, mysql_url, tmp_path):
    with mysql_server.admin() as db, db.cursor() as cursor:
        cursor.execute("CREATE USER poor@'%' IDENTIFIED BY 'x'")
        cursor.execute(f"GRANT SELECT ON {database_of(mysql_url)}.* TO poor@'%'")
    troubles = {
        mysql_url.replace(PASSWORD, "wrong-one"): ("Access denied", "user and password"),
        mysql_url.replace(database_of(mysql_url), "nowhere"): ("Unknown database", "make the database first"),
        mysql_url.replace(f"pakka:{PASSWORD}", "poor:x"): ("denied", "GRANT SELECT, INSERT"),
    }
    try:
        for url, (message, hint) in troubles.items():
            site = Site.of(url, tmp_path, way="prepared")
            with pytest.raises(SinkError, match=message) as refused:
                site.driver()
            assert hint in refused.value.hint
            assert "wrong-one" not in str(refused.value)
    finally:
        with mysql_server.admin() as db:
            db.cursor().execute("DROP USER poor")


def test_a_server_that_is_not_there_is_unavailable(tmp_path):
    site = Site.of("mysql://u:sesame@127.0.0.1:1/d", tmp_path, way="prepared")
    with pytest.raises(UnavailableError, match="nothing was changed") as refused:
        site.driver()
    assert "sesame" not in str(refused.value)


def test_a_certificate_that_is_not_there_is_told_and_is_no_server_that_is_down(tmp_path):
    site = Site.of(f"mysql://u:sesame@127.0.0.1:1/d?ssl_ca={tmp_path}/nowhere.pem", tmp_path, way="prepared")
    with pytest.raises(SinkError, match="a file for TLS cannot be used") as refused:
        site.driver()
    assert "ssl_ca" in refused.value.hint


def test_a_server_that_cannot_prove_who_it_is_is_no_server_that_is_down():
    """The library gives both the same number."""
    error = DriverError(2003, "Can't connect to MySQL server on 'db' (certificate verify failed)")
    error.original_exception = ssl.SSLCertVerificationError("certificate verify failed")
    address = Address.parse("mysql://u:sesame@db/d?ssl_ca=ca.pem")
    with pytest.raises(SinkError, match="certificate verify failed") as refused, told("somebody", address):
        raise error
    assert "the certificate is of that host" in refused.value.hint


def test_a_line_that_broke_off_is_not_used_again(mysql_url, mysql_server):
    lines = _mysql_line.lines_of(Address.parse(mysql_url))
    with lines.lend() as line:
        assert line.ask("SELECT 1") == [(1,)]
    mysql_server.kill()
    mysql_server.restart()
    with lines.lend() as line:
        assert line.ask("SELECT 2") == [(2,)]
    lines.close()
    lines.close()


def test_a_server_where_files_are_switched_off_gets_rows_by_insert(tmp_path):
    with running_server(need_binaries(), local_infile="0") as server:
        url = server.create_database()
        for fence, way in enumerate(("prepared", "spooled"), start=1):
            site = Site.of(url, tmp_path, way=way)
            site.deliver(fence, rows(id=range(1000), note=["it's\\"] * 1000, raw=[b"\xff\0'"] * 1000), fence=fence)
        assert site.ask("SELECT count(*), min(note), max(raw) FROM refund") == [(2000, "it's\\", b"\xff\0'")]


def test_the_words_of_an_error_are_the_server_s_and_on_one_line(mysql_url):
    address = Address.parse(mysql_url)
    with closing(Line(address)) as line, pytest.raises(SinkError) as refused, told("somebody", address):
        line.ask("SELECT nothing\nFROM nowhere")
    assert "\n" not in refused.value.message
    assert "nowhere" in refused.value.message
