"""The protocol: fence, recover, prepare check, decide, commit, sweep. It knows contracts, no sink and no Spark."""
