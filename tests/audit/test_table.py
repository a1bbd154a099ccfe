"""The compliance table is what the audits say, today."""

import re

import pytest

from pakka.audit.table import MADE, page, reports
from tests.audit.compliance import PAGE, refused


def undated(text: str) -> str:
    """The page without the line that says when and with what it was made."""
    return re.sub(rf"^{MADE}.*$", MADE, text, flags=re.MULTILINE)


@pytest.mark.postgres
@pytest.mark.mysql
@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_the_page_is_what_the_audits_say(postgres_url, mysql_url, kafka_server):
    audited = reports({"postgres": postgres_url, "mysql": mysql_url, "kafka": f"kafka://{kafka_server.bootstrap}"})
    made = page(audited, refused(mysql_url), "today")
    assert undated(PAGE.read_text(encoding="utf-8")) == undated(made), "run `make compliance`"


def test_a_page_typed_by_hand_is_found():
    text = PAGE.read_text(encoding="utf-8")
    assert undated(text) == undated(re.sub(r"\d{4}-\d\d-\d\d", "1999-01-01", text))
    assert undated(text) != undated(text.replace("FAIL", "PASS", 1))
