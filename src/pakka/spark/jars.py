"""Jars that a source needs in Spark's JVM: found, named to Spark, or said to be missing, with what to do about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.find_spark_home import _find_spark_home

from pakka.contract.source import Jars
from pakka.errors import ConfigError, PakkaError, UsageError

_PACKAGES = "spark.jars.packages"
_FILES = "spark.jars"
# What Spark prints when Ivy, which it carries, has not found a package.
_UNRESOLVED = ("unresolved dependency", "UNRESOLVED DEPENDENCIES", "download failed", "FAILED DOWNLOADS")


def with_jars(settings: Mapping[str, str], jars: Jars | None) -> dict[str, str]:
    """The settings with what is needed added to what the user names himself. A package that he names in another version, that
    Spark has already, or whose jar is among his files, is not named again.
    """
    made = dict(settings)
    if jars is None:
        return made
    if jars.directory is not None:
        made[_FILES] = _joined(made.get(_FILES, ""), _listed(jars, jars.directory))
        return made
    named = made.get(_PACKAGES, "")
    there = [os.path.basename(path) for path in _split(made.get(_FILES, ""))] + _of_spark()
    needed = [p for p in jars.packages if _artifact(p) not in _artifacts(named) and not _is_among(p, there)]
    if needed:
        made[_PACKAGES] = _joined(named, needed)
    return made


def check_loaded(session: Any, jars: Jars | None) -> None:
    """Refuse a session that was started by somebody else without them: no jar can be added to it any more."""
    if jars is None:
        return
    for package, name in jars.packages.items():
        try:
            session._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
        except Py4JError as error:
            raise UsageError(
                f"{jars.whose}: the Spark session that is running here has no {_artifact(package)}, and a jar cannot be "
                "added to it any more; nothing was started",
                hint=f"start it with `.config('{_PACKAGES}', '{package}')`, or let pakka start Spark",
            ) from error


def not_resolved(jars: Jars | None, settings: Mapping[str, str], printed: str) -> PakkaError | None:
    """What to do when Spark has not started for want of a jar; None if that is not the reason."""
    if jars is None or _PACKAGES not in settings or not any(words in printed for words in _UNRESOLVED):
        return None
    missing = [
        line.strip(" :\t")
        for line in printed.splitlines()
        if ": not found" in line or ("!" in line and "FAILED" in line)
    ]
    wanted = ", ".join(dict.fromkeys(missing)) or settings[_PACKAGES]
    return UsageError(
        f"{jars.whose}: Spark's connector could not be fetched: {wanted}; nothing was started",
        hint="it comes from Maven Central: see that this machine reaches it (a proxy: `spark.driver.extraJavaOptions: -Dhttps.proxyHost=... "
        "-Dhttps.proxyPort=...`; a mirror: DEFAULT_ARTIFACT_REPOSITORY in the environment, or `spark.jars.ivySettings`); or put the jars in a "
        "directory and name it with `jars:` of the source; or name a version that there is under `spark: {spark.jars.packages: ...}`",
    )


def _listed(jars: Jars, directory: str) -> list[str]:
    found = sorted(str(path.absolute()) for path in Path(directory).glob("*.jar"))
    names = [os.path.basename(path) for path in found] + _of_spark()
    for package in jars.packages:
        if not _is_among(package, names):
            raise ConfigError(
                f"{jars.whose}: there is no {_artifact(package).partition(':')[2]} in `jars: {directory}`; nothing was started",
                hint=f"put {package} there, with all that it needs: docs/reference/kafka-source.md has the list",
            )
    return found


def _of_spark() -> list[str]:
    """The jars that this Spark comes with: a cluster's image may have the connector in it."""
    return [path.name for path in Path(_find_spark_home(), "jars").glob("*.jar")]


def _is_among(package: str, names: list[str]) -> bool:
    artifact = _artifact(package).partition(":")[2]
    return any(name.startswith(f"{artifact}-") for name in names)


def _artifacts(packages: str) -> set[str]:
    return {_artifact(package) for package in _split(packages)}


def _artifact(package: str) -> str:
    return ":".join(package.split(":")[:2])


def _split(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def _joined(listed: str, more: list[str]) -> str:
    return ",".join([*_split(listed), *more])
