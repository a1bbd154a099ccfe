"""Protocols only: what a source, a sink and a state store must do. Nothing here imports a driver library."""
