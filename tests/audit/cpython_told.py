"""Runs tests of CPython and prints a line `PASS test`, `FAIL test` or `SKIP test: reason` for each."""

import sys
import unittest


def run(classes: list[type[unittest.TestCase]], suffix: str = "") -> None:
    """Runs all tests of these classes. `suffix` is appended to each name."""

    class Told(unittest.TextTestResult):
        def say(self, word: str, test: unittest.TestCase, more: str = "") -> None:
            name = test._testMethodName if hasattr(test, "_testMethodName") else str(test)
            print(f"{word} {type(test).__name__}.{name}{suffix}{more}", flush=True)

        def addSuccess(self, test: unittest.TestCase) -> None:
            super().addSuccess(test)
            self.say("PASS", test)

        def addError(self, test: unittest.TestCase, error: object) -> None:
            super().addError(test, error)
            self.say("FAIL", test)

        def addFailure(self, test: unittest.TestCase, error: object) -> None:
            super().addFailure(test, error)
            self.say("FAIL", test)

        def addSubTest(self, test: unittest.TestCase, subtest: object, error: object) -> None:
            super().addSubTest(test, subtest, error)
            if error is not None:
                self.say("FAIL", test)

        def addSkip(self, test: unittest.TestCase, reason: str) -> None:
            super().addSkip(test, reason)
            self.say("SKIP", test, f": {reason}")

    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, classes))
    unittest.TextTestRunner(stream=sys.stderr, resultclass=Told).run(suite)
