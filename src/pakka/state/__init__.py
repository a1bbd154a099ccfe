"""Where fences and decisions are kept: embedded SQLite on one machine, PostgreSQL for drivers on several.

The two differ in how they connect, lock and fail. What they do stands once, in `_store`.
"""

from pakka.state.url import open_store, settings_of

__all__ = ["open_store", "settings_of"]
