"""Large deliveries are parsed in a bounded process, which reads only the parts of the payload that a trigger uses."""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from agent_runtime import BoundExceededError, run_bounded
from bot.domain.access import BotProfile
from bot.domain.errors import MalformedError
from bot.domain.job import Job
from bot.events.delivery import IgnoredDelivery, lower_names, parse_delivery
from bot.events.triggers import job_from, router
from bot.queue.records import decode_job, encode_job

_SECONDS = 8.0
"""GitHub waits 10 s."""

_MEMORY = 96 * 1024**2
_HEADERS = ("content-type", "x-github-event", "x-github-delivery")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_START, _END = re.compile(rb"\s*+\{"), re.compile(rb"\s*+\}\s*+\Z")
_KEY = re.compile(rb"[\s,]*+(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
_PLAIN_VALUE = re.compile(_STRING + rb"|[^,}\s]++", re.DOTALL)
# A match keeps memory for each repetition of a group. So they are limited, and a container without others is one.
_SCALARS = rb'(?:[^"\[\]{}]++|' + _STRING + rb"){0,1000}+"
_CONTENT = rb'(?:[^"\[\]{}]++|' + _STRING + rb"|[\[{]" + _SCALARS + rb"[\]}]){1,1000}+"
_TOKEN = re.compile(_CONTENT + rb"|([\[\]{}])", re.DOTALL)


async def read_delivery(
    path: Path, headers: Mapping[str, str], profile: BotProfile, *, seconds: float = _SECONDS
) -> Job | IgnoredDelivery:
    """Parse an authentic delivery in a bounded process.

    Raises:
        MalformedError: invalid, or out of memory.
        TimeoutError: perhaps the machine's fault; GitHub can redeliver it.
    """
    names = {name: value for name, value in lower_names(headers).items() if name in _HEADERS}
    if names.get("x-github-event") not in router.actions:
        return IgnoredDelivery(reason="no trigger handles this event")
    task = "Reading the delivery"
    try:
        answer = await run_bounded(
            read_in_worker, str(path), names, profile, seconds=seconds, memory=_MEMORY, task=task
        )
    except BoundExceededError as error:
        if error.bound == "seconds":
            raise TimeoutError(str(error)) from error
        raise MalformedError("the delivery requires more memory than allowed") from error
    kind, _, text = answer.partition(":")
    match kind:
        case "job":
            return decode_job(text)
        case "ignored":
            return IgnoredDelivery(reason=text)
        case _:
            raise MalformedError(text)


def read_in_worker(path: str, headers: Mapping[str, str], profile: BotProfile) -> str:
    """Parse a delivery in the worker process; return `job:`, `ignored:` or `malformed:` with the job or reason."""
    try:
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
            members = select_members(body, router.fields)
        job = job_from(parse_delivery(headers, members), profile)
    except MalformedError as error:
        return f"malformed:{error}"
    return f"ignored:{job.reason}" if isinstance(job, IgnoredDelivery) else f"job:{encode_job(job)}"


def select_members(body: bytes | mmap.mmap, names: Collection[str]) -> bytes:
    """Return a JSON object with some members of another one; the whole text if that is no object.

    The other members are skipped, and no value is made of them.
    """
    keys = {f'"{name}"'.encode() for name in names}
    members: list[memoryview] = []
    with memoryview(body) as view:
        start = _START.match(body)
        end = start and start.end()
        while end is not None and (key := _KEY.match(body, end)):
            end = _value_end(body, key.end())
            if key[1] in keys or b"\\" in key[1]:  # an escaped name may be one of them
                members.append(view[key.start(1) : end])
        is_object = end is not None and _END.match(body, end)
        return b"{%b}" % b",".join(members) if is_object else bytes(body)


def _value_end(body: bytes | mmap.mmap, start: int) -> int | None:
    if body[start : start + 1] not in {b"{", b"["}:
        plain = _PLAIN_VALUE.match(body, start)
        return None if plain is None else plain.end()
    depth = 0
    for token in _TOKEN.finditer(body, start + 1):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[1], 0)
        if depth < 0:
            return token.end()
    return None
