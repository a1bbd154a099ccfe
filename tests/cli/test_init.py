"""`pakka init`: an example that runs."""

import json
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from pakka.cli.init import example
from pakka.config import json_schema

REPOSITORY = Path(__file__).resolve().parents[2]


def test_an_example_is_written(pakka, current_directory):
    result = pakka("init", "shop")
    assert result.exit_code == 0
    assert result.stdout == "shop/refunds.yaml\nshop/README.md\nshop/data/settlements (12 files)\n"
    assert result.stderr == "2,400 settlements, some of them broken; next: cd shop && pakka run refunds.yaml\n"
    assert sorted(p.name for p in (current_directory / "shop").iterdir()) == ["README.md", "data", "refunds.yaml"]


def test_it_goes_into_the_current_directory_by_default(pakka, current_directory):
    assert pakka("init").stderr.endswith("next: pakka run refunds.yaml\n")
    assert (current_directory / "refunds.yaml").exists()


def test_the_rows_are_the_same_every_time_and_broken_in_every_way(pakka, current_directory):
    pakka("init", "one")
    pakka("init", "two")
    one = [p.read_text() for p in sorted(Path("one/data/settlements").iterdir())]
    assert one == [p.read_text() for p in sorted(Path("two/data/settlements").iterdir())]
    lines = "".join(one).splitlines()
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    assert len(lines) == 2400
    assert len(rows) < len(lines)
    assert any(row["merchant"] is None for row in rows)
    assert any(isinstance(row["amount_paise"], str) for row in rows)
    assert any(isinstance(row["amount_paise"], int) and row["amount_paise"] < 0 for row in rows)
    assert len({row["settlement_id"] for row in rows}) == len(rows)


def test_files_that_are_there_are_not_overwritten(pakka, current_directory):
    (current_directory / "refunds.yaml").write_text("mine")
    result = pakka("init")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: refunds.yaml is there already; nothing was written\n\n"
        "hint: choose another directory, or overwrite with `--force`\n"
    )
    assert [p.name for p in current_directory.iterdir()] == ["refunds.yaml"]
    assert pakka("init", "--force").exit_code == 0
    assert (current_directory / "refunds.yaml").read_text() == example()


def test_programs_get_the_names(pakka):
    told = json.loads(pakka("init", "shop", "--json").stdout)
    assert told["directory"] == "shop"
    assert "refunds.yaml" in told["files"]


def test_the_example_is_the_one_in_the_repository():
    assert (REPOSITORY / "examples" / "refunds" / "refunds.yaml").read_text() == example()


def test_the_example_fits_the_schema():
    assert list(Draft202012Validator(json_schema()).iter_errors(yaml.safe_load(example()))) == []


def test_the_example_is_exactly_once(pakka):
    pakka("init")
    result = pakka("check", "refunds.yaml", "--require", "exactly-once")
    assert (result.exit_code, result.stderr) == (0, "")
