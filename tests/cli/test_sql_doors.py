"""A database that does not let its user in, or lets them do too little: exit code, the server's words, and what to type."""

from urllib.parse import urlsplit

import pytest
import yaml

from tests.faults.sql.ground import Ground
from tests.fixtures.server import PASSWORD

REGISTERED = {"postgres": "postgres", "mariadb": "mysql"}
CLERK = {
    "postgres": ("DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN PASSWORD 'sesame'"),
    "mariadb": ("CREATE OR REPLACE USER clerk IDENTIFIED BY 'sesame'", "GRANT SELECT ON *.* TO clerk"),
}

TABLES = {"postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'", "mariadb": "SHOW TABLES"}


def with_wrong_password(base: Ground) -> str:
    return base.url.replace(PASSWORD, "wrong")


def with_missing_database(base: Ground) -> str:
    return base.url.rpartition("/")[0] + "/nowhere"


def with_missing_rights(base: Ground) -> str:
    """As somebody who may look, and nothing else."""
    for statement in CLERK[base.system.name]:
        base.admin(statement)
    return base.url.replace(f"pakka:{PASSWORD}", "clerk:sesame")


CASES = {
    "password": (
        with_wrong_password,
        {"postgres": "password authentication failed", "mariadb": "Access denied"},
        "see that user and password of `url` are right; take the password from `${env:NAME}`",
    ),
    "database": (
        with_missing_database,
        {"postgres": 'database "nowhere" does not exist', "mariadb": "Unknown database 'nowhere'"},
        "make the database first, or name another one in `url`",
    ),
    "rights": (
        with_missing_rights,
        {"postgres": "permission denied", "mariadb": "denied to user 'clerk'"},
        "let the user of `url` do it: `GRANT ",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_audit_that_cannot_begin_says_what_to_change(pakka, base, case):
    change, told, hint = CASES[case]
    url = change(base)
    result = pakka("audit", url)
    assert (result.exit_code, result.stdout) == (1, "")
    check(result.stderr, url, told[base.system.name], hint)
    assert base.ask(TABLES[base.system.name]) == []


@pytest.mark.parametrize("case", ["password", "database"])
def test_a_check_that_cannot_ask_the_server_says_what_to_change(pakka, refunds, base, case):
    change, told, hint = CASES[case]
    url = change(base)
    described = yaml.safe_load(refunds.read_text())
    described["sinks"] = {"refunds": {REGISTERED[base.system.name]: {"url": url, "table": "refunds"}}}
    refunds.write_text(yaml.safe_dump(described))
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    check(result.stderr, url, told[base.system.name], hint)


def check(said: str, url: str, told: str, hint: str) -> None:
    error, _, advice = said.partition("\n\nhint: ")
    assert told in error
    assert error.endswith(("; nothing was changed", "; it is left as it was"))
    assert advice.startswith(hint)
    assert urlsplit(url).password not in said
