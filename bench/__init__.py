"""Benchmarks: one command per question, each answered against a peer in the same run. `python -m bench` lists them."""
