"""The command line: `pakka VERB`. One module per verb; `render` alone prints."""

from pakka.cli.app import main

__all__ = ["main"]
