import subprocess
import sys

from bench.measure import cpu_since, in_turns, percentile, resident_bytes, tree_cpu, tree_cpu_s, tree_resident_bytes


def test_sides_take_turns_and_the_first_of_a_round_changes():
    order = []
    in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3, warm_ups=1)
    assert "".join(order) == "ba" + "ab" + "ba" + "ab"


def test_warm_up_rounds_are_thrown_away():
    numbers = iter(range(10))
    assert in_turns({"a": lambda: next(numbers)}, rounds=2, warm_ups=3) == {"a": [3, 4]}


def test_percentile_of_few_values_is_one_of_them():
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([5.0], 0.95) == 5.0


def test_processor_time_counts_upwards():
    before = tree_cpu_s()
    sum(i * i for i in range(2_000_000))
    assert tree_cpu_s() > before


def test_processor_time_is_told_by_kind_of_process():
    before = tree_cpu()
    sum(i * i for i in range(2_000_000))
    subprocess.run([sys.executable, "-c", "sum(i * i for i in range(2_000_000))"], check=True)
    spent = cpu_since(before)
    assert spent["the driver"] > 0
    assert spent["others"] > 0


def test_resident_memory_of_the_tree_has_a_child_beside_the_driver():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        held = tree_resident_bytes()
    finally:
        child.communicate(b"\n")
    assert held["the driver"] > 1 << 20
    assert held["workers"] > 0


def test_resident_memory_sees_what_is_touched():
    before = resident_bytes()
    block = bytearray(b"x") * (64 << 20)
    assert resident_bytes() - before > 32 << 20
    del block
