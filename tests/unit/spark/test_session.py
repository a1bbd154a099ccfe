"""What the JVM and its workers print goes where it was told to, and never among what pakka tells on stdout."""

import subprocess
import sys

from pakka.spark.session import _output_to

_LOUD = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"]


def test_a_child_prints_into_the_log(tmp_path, capfd):
    log = tmp_path / "logs" / "spark.log"
    with _output_to(log):
        subprocess.run(_LOUD, check=True)
    subprocess.run(_LOUD, check=True)
    assert sorted(log.read_text().split()) == ["err", "out"]
    assert capfd.readouterr() == ("out\n", "err\n")


def test_without_a_log_a_child_prints_to_stderr(capfd):
    with _output_to(None):
        subprocess.run(_LOUD, check=True)
    out, err = capfd.readouterr()
    assert (out, sorted(err.split())) == ("", ["err", "out"])
