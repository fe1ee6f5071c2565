"""Arrays between processes of one machine, and files, by the way that is fastest on it.

    with thalweg.offer("camera") as out:       # one program
        out.send(array)

    for array in thalweg.take("camera"):       # another, started before or after
        ...

The bytes go through shared memory without names and without a daemon; a process that is killed is told of at once
(`PeerDied`) and leaves nothing behind. docs/python.md has the whole of it.
"""

from thalweg._async import AsyncOffer, AsyncTake, offer_async, take_async
from thalweg._commands import Doctor, Plan, Profile, Transfer, Tuned, Verdict, doctor, plan, transfer, tune
from thalweg._errors import Closed, Corrupt, Error, NotPermitted, PeerDied, Timeout, TooLarge
from thalweg._files import CopyReport, Mechanism, Share, copy, mechanisms
from thalweg._native import Offer, Take, offer, pair, take
from thalweg._objects import dumps_oob, loads_oob
from thalweg._region import Region

__all__ = [
    "AsyncOffer",
    "AsyncTake",
    "Closed",
    "CopyReport",
    "Corrupt",
    "Doctor",
    "Error",
    "Mechanism",
    "NotPermitted",
    "Offer",
    "PeerDied",
    "Plan",
    "Profile",
    "Region",
    "Share",
    "Take",
    "Timeout",
    "TooLarge",
    "Transfer",
    "Tuned",
    "Verdict",
    "copy",
    "doctor",
    "dumps_oob",
    "loads_oob",
    "mechanisms",
    "offer",
    "offer_async",
    "pair",
    "plan",
    "take",
    "take_async",
    "transfer",
    "tune",
]
