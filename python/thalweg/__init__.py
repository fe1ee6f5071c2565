"""Moves arrays between processes of one machine, and copies files, by the method that is fastest on the machine.

    with thalweg.offer("camera") as out:       # one program
        out.send(array)

    for array in thalweg.take("camera"):       # another, started before or after
        ...

The bytes go through anonymous shared memory, without a daemon. If a process is killed, the other one gets PeerDied at
once, and nothing is left behind. See docs/reference/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thalweg._errors import Closed, Corrupt, Error, NotPermitted, PeerDied, Timeout, TooLarge
from thalweg._native import Broadcast, Consumer, Mpsc, Producer, broadcast, gather, join, offer, pair, subscribe, take
from thalweg._objects import dumps_oob, loads_oob

if TYPE_CHECKING:
    from thalweg._async import AsyncConsumer, AsyncProducer, offer_async, take_async
    from thalweg._async_many import AsyncBroadcast, AsyncMpsc, broadcast_async, gather_async, subscribe_async
    from thalweg._commands import Doctor, Plan, Profile, Transfer, Tuned, Verdict, doctor, plan, transfer, tune
    from thalweg._files import CopyReport, Mechanism, Share, copy, mechanisms
    from thalweg._fleet import FleetReport, Incomplete, Worker, copy_tree
    from thalweg._links import link, offer_over, take_over
    from thalweg._machines import Machines, fleet_doctor, tune_fleet
    from thalweg._region import Region

__all__ = [
    "AsyncBroadcast",
    "AsyncConsumer",
    "AsyncMpsc",
    "AsyncProducer",
    "Broadcast",
    "Closed",
    "Consumer",
    "CopyReport",
    "Corrupt",
    "Doctor",
    "Error",
    "FleetReport",
    "Incomplete",
    "Machines",
    "Mechanism",
    "Mpsc",
    "NotPermitted",
    "PeerDied",
    "Plan",
    "Producer",
    "Profile",
    "Region",
    "Share",
    "Timeout",
    "TooLarge",
    "Transfer",
    "Tuned",
    "Verdict",
    "Worker",
    "broadcast",
    "broadcast_async",
    "copy",
    "copy_tree",
    "doctor",
    "dumps_oob",
    "fleet_doctor",
    "gather",
    "gather_async",
    "join",
    "link",
    "loads_oob",
    "mechanisms",
    "offer",
    "offer_async",
    "offer_over",
    "pair",
    "plan",
    "subscribe",
    "subscribe_async",
    "take",
    "take_async",
    "take_over",
    "transfer",
    "tune",
    "tune_fleet",
]

# Names whose modules are imported at first use, because asyncio, subprocess and dataclasses would take most of the
# time of `import thalweg`.
_LATER = {
    "_async": {"AsyncConsumer", "AsyncProducer", "offer_async", "take_async"},
    "_async_many": {"AsyncBroadcast", "AsyncMpsc", "broadcast_async", "gather_async", "subscribe_async"},
    "_commands": {"Doctor", "Plan", "Profile", "Transfer", "Tuned", "Verdict", "doctor", "plan", "transfer", "tune"},
    "_files": {"CopyReport", "Mechanism", "Share", "copy", "mechanisms"},
    "_fleet": {"FleetReport", "Incomplete", "Worker", "copy_tree"},
    "_links": {"link", "offer_over", "take_over"},
    "_machines": {"Machines", "fleet_doctor", "tune_fleet"},
    "_region": {"Region"},
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"thalweg.{module}"), name)
            return found
    raise AttributeError(f"module 'thalweg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
