"""Tests of table.py: `python3 tools/bench/test_table.py`."""

from __future__ import annotations

import unittest

from table import BenchError, Goal, Row, shown


def row(**changes: str) -> Row:
    table = {"work": "a queue", "unit": "ns", "before": "17", "ours": r"^ours ([0-9.,]+)", "goal": "<= 1.2 x"}
    return Row.parse(table | {"compared": r"^theirs ([0-9.,]+)", "with": "C"} | changes)


class Table(unittest.TestCase):
    def test_a_ratio_is_judged_by_medians(self) -> None:
        queue = row()
        for ours, theirs in [("11", "10"), ("14", "10"), ("12", "1,000")]:
            queue.read(f"ours {ours}\ntheirs {theirs}\n")
        self.assertEqual(queue.line(), "| a queue | 17 | 11.0, **12.0**, 14.0 ns | C: 10.0 ns | 1.2 | ≤ 1.2 × | met |")

    def test_a_missed_goal_is_shown_as_missed(self) -> None:
        queue = row(goal=">= 20")
        queue.read("ours 12\ntheirs 10")
        self.assertTrue(queue.line().endswith("| ≥ 20 | missed |"))

    def test_a_program_that_measures_nothing_is_an_error(self) -> None:
        with self.assertRaisesRegex(BenchError, "no line matches"):
            row().read("theirs 10")

    def test_goals_and_keys_are_checked(self) -> None:
        for goal in ["1.2", "< 3", "<= x"]:
            with self.assertRaises(BenchError):
                Goal.parse(goal)
        with self.assertRaisesRegex(BenchError, "unknown keys"):
            row(goals=">= 1")

    def test_numbers_have_three_digits(self) -> None:
        self.assertEqual([shown(value) for value in (0.1234, 1.5, 12.34, 1234.5)], ["0.123", "1.5", "12.3", "1,234"])


if __name__ == "__main__":
    unittest.main()
