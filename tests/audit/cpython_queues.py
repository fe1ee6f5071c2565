"""Runs CPython's tests of multiprocessing's queues with those of `thalweg.multiprocessing`. Prints a line
`PASS test` or `FAIL test` for each.

    python cpython_queues.py spawn|fork|forkserver
"""

import multiprocessing
import os
import sys
import unittest

import test._test_multiprocessing as theirs
import thalweg.multiprocessing as ours

# Uses the environment, because children import this file too, but do not get the command's arguments.
METHOD = os.environ.setdefault("START_METHOD", sys.argv[-1])
CONTEXT = multiprocessing.get_context(METHOD)


class WithOurs(theirs._TestQueue, unittest.TestCase):
    TYPE = "processes"
    Process = CONTEXT.Process
    Event = staticmethod(CONTEXT.Event)
    Queue = staticmethod(ours.Queue)
    JoinableQueue = staticmethod(ours.JoinableQueue)


class Told(unittest.TextTestResult):
    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        print("PASS", test._testMethodName, METHOD)

    def addError(self, test: unittest.TestCase, error: object) -> None:
        super().addError(test, error)
        print("FAIL", test._testMethodName, METHOD)

    def addFailure(self, test: unittest.TestCase, error: object) -> None:
        super().addFailure(test, error)
        print("FAIL", test._testMethodName, METHOD)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        print(f"SKIP {test._testMethodName} {METHOD}: {reason}")


if __name__ == "__main__":
    multiprocessing.set_start_method(METHOD, force=True)
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(WithOurs)
    unittest.TextTestRunner(stream=sys.stderr, resultclass=Told).run(tests)
