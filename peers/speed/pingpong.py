"""Sends a message to another process and back, in Python, as the examples `pingpong` do in C and Rust.

    pingpong.py ping|pong DIR|fd:N,M [hybrid] [TRIPS] [BATCHES] [BYTES]

N and M are the descriptors of two links. `ping` prints the median of its batches, in nanoseconds for a round trip.
"""

import statistics
import sys
import time

import thalweg


def ends(place: str, is_ping: bool) -> tuple[thalweg.Producer, thalweg.Consumer]:
    """Opens the channel to the other process and the channel back. Both processes open the channel of `ping` first."""
    is_inherited = place.startswith("fd:")
    names = map(int, place.removeprefix("fd:").split(",")) if is_inherited else (f"{place}/there", f"{place}/back")
    there, back = names
    own, other = (there, back) if is_ping else (back, there)
    out = thalweg.offer_over(own) if is_inherited else thalweg.offer(own)
    into = thalweg.take_over(other) if is_inherited else thalweg.take(other)
    for end in (out, into) if is_ping else (into, out):
        end.open()
    return out, into


def batch(out: thalweg.Producer, into: thalweg.Consumer, message: bytes, trips: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(trips):
        out.send_bytes(message)
        into.receive_bytes()
    return (time.perf_counter_ns() - begin) / trips


def main(role: str, place: str, wait: str = "hybrid", trips: str = "100000", batches: str = "21", size: str = "64") -> None:
    if wait != "hybrid":
        raise SystemExit("pingpong: in Python, ends of channels always wait as `hybrid`")
    out, into = ends(place, role == "ping")
    if role == "ping":
        message = bytes(int(size))
        for _ in range(5):
            batch(out, into, message, int(trips))
        print(f"{statistics.median(batch(out, into, message, int(trips)) for _ in range(int(batches))):.1f} ns")
        out.close()
        return
    try:
        while True:
            out.send_bytes(into.receive_bytes())
    except thalweg.Closed:
        pass


main(*sys.argv[1:])
