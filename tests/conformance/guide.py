"""The sink of docs/guides/custom-sink.md, taken from that very page. A module, so that it can be pickled."""

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "custom-sink.md"
_BLOCKS = blocks(PAGE)
SQL = next(b.text for b in _BLOCKS if b.language == "sql")
CODE = next(b.text for b in _BLOCKS if "class RefundTable" in b.text)

exec(compile(CODE, str(PAGE), "exec"), globals())
