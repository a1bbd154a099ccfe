"""pakka: exactly-once delivery for Apache Spark pipelines."""

__version__ = "0.1.0"
