"""The auditor: does a live sink keep the four guarantees, and do its settings let it?

A sink is interrogated by doing: `interrogate` goes through the cases, `actor` is the process that is killed or wakes up too
late, `scratch` sees to it that nothing is left behind, `target` finds the sink, `report` and `render` say what was seen.
"""
