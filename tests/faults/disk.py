"""File systems so small that a test can fill them."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Mount = Callable[..., Path]


@contextmanager
def mounting() -> Iterator[Mount]:
    """Mounts file systems of a megabyte, or of another size. Where that is not allowed, the test is skipped by name."""
    mounted: list[Path] = []

    def mount_at(path: Path, size: str = "1m") -> Path:
        path.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "pakka", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            message = f"a small file system cannot be mounted here: {result.stderr.strip()}"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        mounted.append(path)
        return path

    yield mount_at
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def fill(path: Path) -> None:
    """Until not a byte more fits."""
    with open(path / "ballast", "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def free(path: Path) -> None:
    (path / "ballast").unlink()
