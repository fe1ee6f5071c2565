"""Tests of the statistics and of the runner: python3 -B -m unittest discover -s peers/speed"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import stats  # noqa: E402
from measure import Failed, command, pipeline, with_other_program  # noqa: E402
from stats import Ratio  # noqa: E402


class Statistics(unittest.TestCase):
    def test_a_ratio_is_the_median_of_the_ratios_within_rounds(self):
        measured = stats.ratio([1.0, 4.0, 9.0], [2.0, 4.0, 3.0])
        self.assertEqual(measured.median, 1.0)
        self.assertEqual((measured.low, measured.high), (0.5, 3.0))

    def test_an_interval_of_equal_values_has_no_width(self):
        self.assertEqual(stats.interval([2.0] * 7), (2.0, 2.0))

    def test_an_interval_contains_the_median_and_lies_within_the_values(self):
        values = [0.9, 1.0, 1.1, 1.2, 0.8, 1.05, 0.97]
        low, high = stats.interval(values)
        self.assertLessEqual(min(values), low)
        self.assertLessEqual(low, 1.0)
        self.assertLessEqual(1.0, high)
        self.assertLessEqual(high, max(values))

    def test_a_difference_smaller_than_that_of_equal_commands_is_even(self):
        again = Ratio(1.0, 0.9, 1.1)
        self.assertEqual(stats.verdict(Ratio(0.95, 0.93, 0.97), again, 7), "even")
        self.assertEqual(stats.verdict(Ratio(0.8, 0.75, 0.85), again, 7), "won")
        self.assertEqual(stats.verdict(Ratio(1.3, 1.2, 1.4), again, 7), "lost")
        self.assertEqual(stats.verdict(Ratio(1.3, 0.98, 1.4), again, 7), "even")

    def test_few_rounds_have_no_verdict(self):
        self.assertEqual(stats.verdict(Ratio(0.8, 0.75, 0.85), Ratio(1.0, 0.9, 1.1), 5), "too few rounds")

    def test_an_interval_of_few_values_is_not_narrower_than_that_of_the_sign_test(self):
        self.assertEqual(stats.exact([3.0, 1.0, 2.0]), (1.0, 3.0))
        self.assertEqual(stats.exact([float(value) for value in range(7)]), (0.0, 6.0))
        # A median below the fourth or above the twelfth of 15 values: 2 * (1 + 15 + 105 + 455) / 2^15 = 3.5 %.
        self.assertEqual(stats.exact([float(value) for value in range(15)]), (3.0, 11.0))

    def test_a_sample_without_time_has_no_ratio(self):
        self.assertIsNone(stats.ratio([0.0, 1.0], [1.0, 1.0]))


class Samples(unittest.TestCase):
    place = Path("/")

    def test_the_time_of_children_and_of_orphans_counts(self):
        busy = "import time, os\nwhile time.process_time() < 0.1: pass"
        # The child of the shell outlives the shell.
        line = f"{sys.executable} -c '{busy}' & exit 0"
        self.assertGreater(command("sh", "-c", line)(self.place).cpu, 0.1)

    def test_a_pipeline_passes_bytes_from_its_input_to_its_output(self):
        with tempfile.TemporaryDirectory() as scratch:
            source, copy = Path(scratch, "source"), Path(scratch, "copy")
            source.write_bytes(b"bytes" * 100_000)
            pipeline(["cat"], ["cat"], stdin="{}/source", stdout="{}/copy")(Path(scratch))
            self.assertEqual(source.read_bytes(), copy.read_bytes())

    def test_a_repeated_command_knows_its_number(self):
        with tempfile.TemporaryDirectory() as scratch:
            command("touch", "{}/{#}", repeat=3)(Path(scratch))
            self.assertEqual(sorted(path.name for path in Path(scratch).iterdir()), ["0", "1", "2"])

    def test_another_program_replaces_the_first_and_must_be_used(self):
        with_other_program(command("/no-such/cmp", "/dev/null", "/dev/null"), "/no-such/cmp", "cmp")(self.place)
        with self.assertRaisesRegex(Failed, "does not start /no-such"):
            with_other_program(command("true"), "/no-such", "cmp")(self.place)

    def test_a_failure_of_any_step_is_an_error_with_its_message(self):
        with self.assertRaisesRegex(Failed, "no-such"):
            pipeline(["cat", "/no-such"], ["cat"])(self.place)


if __name__ == "__main__":
    unittest.main()
