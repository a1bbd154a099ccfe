"""The public kit for testing sinks and drilling pipelines."""
