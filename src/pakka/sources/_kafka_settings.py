"""One set of settings for two clients: the admin client here is librdkafka, and Spark reads with Kafka's own Java consumer.

A user writes how to get in once, in librdkafka's words, which are the Kafka sink's too; here they become the consumer's. What only
the consumer has is written `kafka.NAME` and goes to it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pakka.errors import ConfigError

_OWN = "kafka."
"""How settings begin that are for Spark's consumer alone."""
_REFUSED = {
    "kafka.bootstrap.servers": "it is the option `servers`",
    "kafka.group.id": "Spark has its own; the group whose offsets others see is the option `group`",
    "kafka.enable.auto.commit": "the offsets are in Spark's checkpoint",
    "kafka.auto.offset.reset": "it is the option `start`; where records are gone the run stops and says so",
    "kafka.key.deserializer": "it is the option `format`",
    "kafka.value.deserializer": "it is the option `format`",
    "kafka.interceptor.classes": "it could change what is read",
}
_SAME = frozenset(
    [
        "client.id",
        "client.rack",
        "security.protocol",
        "sasl.kerberos.service.name",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "max.partition.fetch.bytes",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "session.timeout.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "metadata.max.age.ms",
        "connections.max.idle.ms",
        "socket.connection.setup.timeout.ms",
        "check.crcs",
    ]
)
"""What both clients call the same."""
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "ssl.key.password": "ssl.key.password",
    "ssl.cipher.suites": "ssl.cipher.suites",
}
_OWN_WAY = frozenset(
    [
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.endpoint.identification.algorithm",
    ]
)
"""What the consumer has in another form."""
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def split(whose: str, settings: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """Librdkafka's settings, and the consumer's that were written as such; what may not be set is refused."""
    ours = {name: value for name, value in settings.items() if not name.startswith(_OWN)}
    own = {name: _text(value) for name, value in settings.items() if name.startswith(_OWN)}
    for name, why in _REFUSED.items():
        if name in own:
            raise ConfigError(f"{whose}: `settings` may not have `{name}`: {why}", hint="leave it out")
    level = own.pop("kafka.isolation.level", "read_committed")
    if level != "read_committed":
        raise ConfigError(
            f"{whose}: `kafka.isolation.level` is `{level}`: records of aborted transactions would be delivered as if they were "
            "committed",
            hint="leave it out: `read_committed` is set",
        )
    unknown = [name for name in ours if not _is_known(name) and f"{_OWN}{name}" not in own]
    if unknown:
        raise ConfigError(
            f"{whose}: `{unknown[0]}` is a setting of librdkafka that Spark's consumer has no counterpart for",
            hint=f"write the consumer's own setting as `{_OWN}NAME`, or leave it out",
        )
    return ours, own


def _is_known(name: str) -> bool:
    return name in _SAME or name in _RENAMED or name in _OWN_WAY


def consumer_options(whose: str, ours: Mapping[str, object], own: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's reader, `kafka.` before each name. Files are read here: executors have other disks."""
    text = {name: _text(value) for name, value in ours.items()}
    made = {name: value for name, value in text.items() if name in _SAME}
    made |= {_RENAMED[name]: value for name, value in text.items() if name in _RENAMED}
    made |= _login(whose, text)
    made |= _certificates(whose, text)
    if (algorithm := text.get("ssl.endpoint.identification.algorithm")) is not None:
        made["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return {
        **{f"{_OWN}{name}": value for name, value in made.items()},
        **own,
        "kafka.isolation.level": "read_committed",
    }


def _login(whose: str, text: Mapping[str, str]) -> dict[str, str]:
    if "sasl.username" not in text and "sasl.password" not in text:
        return {}
    mechanism = text.get("sasl.mechanism") or text.get("sasl.mechanisms") or ""
    if mechanism not in _LOGIN:
        raise ConfigError(
            f"{whose}: `sasl.username` and `sasl.password` are for the mechanisms {', '.join(_LOGIN)}, and `sasl.mechanism` is "
            f"`{mechanism}`",
            hint=f"set one of them, or give the consumer's own `{_OWN}sasl.jaas.config`",
        )
    user, password = (_quoted(text.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return {"sasl.jaas.config": f"{_LOGIN[mechanism]} required username={user} password={password};"}


def _certificates(whose: str, text: Mapping[str, str]) -> dict[str, str]:
    """PEM on both sides; the consumer takes the text itself."""
    made: dict[str, str] = {}
    authorities, certificate, key = (_pem(whose, text, name) for name in ("ssl.ca", "ssl.certificate", "ssl.key"))
    if authorities is not None:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if certificate is not None and key is not None:
        own = {"ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
        made |= {"ssl.keystore.type": "PEM", **own}
    return made


def _pem(whose: str, text: Mapping[str, str], name: str) -> str | None:
    if (pem := text.get(f"{name}.pem")) is not None:
        return pem
    if (path := text.get(f"{name}.location")) is None:
        return None
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{whose}: `{name}.location` {path} cannot be read: {error}; nothing was started",
            hint="name a PEM file that the user who runs pakka may read",
        ) from error


def _quoted(value: str) -> str:
    """A value in JAAS's own quotes."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
