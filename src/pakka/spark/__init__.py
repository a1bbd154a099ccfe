"""The engine: how an epoch of Spark's becomes an epoch of ours."""
