"""Metrics of a running pipeline: what they are, how they are counted, and where they are served."""
