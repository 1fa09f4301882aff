"""The writes of one step: which payloads they take, what they would do, what they did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.errors import ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.tools import apart, preview
from agent_runtime.tools.changes import FileWrite, Planner, StepLimits
from agent_runtime.tools.inspection import Inspection
from agent_runtime.tools.payloads import KeptContents, Payloads
from agent_runtime.tools.planned import PlannedWrite, planned_writes
from agent_runtime.transports.blocks.payload_plan import payloads_taken
from agent_runtime.workspace.changes import StaleError, WriteCall, check_mode, pairs
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.overlay import Overlay
from agent_runtime.workspace.patches import UpdateFile, parse_patch
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.staging import apply_all
from agent_runtime.workspace.watch import Watch

Arguments = dict[str, Any]
"""Of a call of `write_file`, by name, those left out that are None; `payload` among them."""

_LINE_ARGUMENTS = ("start_line", "end_line", "after_line", "edits")


@dataclass(frozen=True, slots=True)
class _Promise:
    """What the call that was inspected last would do, so that it does that or nothing.

    Attributes:
        call: its arguments, as text.
        digest: of the files' contents before and after; empty for a call that cannot succeed.
    """

    call: str
    digest: str


class Writer:
    """Makes the writes of a step, or tells what they would do."""

    def __init__(
        self, workspace: Workspace, seen: Seen, watch: Watch, withholds: Callable[[str], bool] = lambda _path: False
    ) -> None:
        """Write in `workspace`, and keep `seen` and `watch` informed.

        Args:
            workspace: where.
            seen: what the agent knows of the files.
            watch: what they are like.
            withholds: whether nothing is to be told of a file that the call does not name, by its canonical path.
        """
        self._workspace = workspace
        self._withholds = withholds
        self._seen = seen
        self._watch = watch
        self._planner = Planner()
        self._kept = KeptContents()
        self.begin_step(Payloads(), "")

    def begin_step(self, payloads: Payloads, control: str) -> None:
        """Take over a reply's payloads; the limits of a step count anew."""
        planned = planned_writes(control)
        self._payloads = payloads
        self._planned = planned if sum(each.payloads for each in planned) == payloads.left() else ()
        self._limits = StepLimits()
        self._tried_ahead = False
        self._promise: _Promise | None = None
        self._resumed = False

    def state(self) -> dict[str, Plain]:
        """Where the step stands; see `resume`."""
        bases: dict[str, Plain] = {path: [version, *lines] for path, (version, lines) in self._seen.bases().items()}
        return {
            "taken": self._payloads.taken,
            "kept": self._kept.to_plain(),
            "whole_writes": self._limits.whole_writes,
            "edited": [*sorted(self._limits.edited)],
            "tried_ahead": self._tried_ahead,
            "bases": bases,
            "promise": [self._promise.call, self._promise.digest] if self._promise else None,
        }

    def resume(self, payloads: Payloads, control: str, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a step, after the files that it knows were read again.

        Args:
            payloads: the reply's, from the first on.
            control: its control block.
            state: what `state` gave when the step was paused.

        Raises:
            ValueError: more payloads were taken than the reply has.
        """
        self.begin_step(payloads, control)
        payloads.skip(state["taken"])
        self._kept = KeptContents.from_plain(state["kept"])
        self._limits = StepLimits(state["whole_writes"], set(state["edited"]))
        self._tried_ahead = state["tried_ahead"]
        for path, (version, *lines) in state["bases"].items():
            self._seen.put_back(path, version, tuple(lines))
        self._promise = _Promise(*state["promise"]) if state["promise"] else None
        self._resumed = True

    def keep_unwritten(self) -> list[str]:
        """Keep what a block that failed did not come to write."""
        ahead = self._payloads.ahead()
        left, unreached = len(ahead), list[tuple[PlannedWrite, tuple[str, ...]]]()
        for planned in reversed(self._planned):
            if planned.payloads and planned.payloads <= left:
                unreached.append((planned, ahead[left - planned.payloads : left]))
                left -= planned.payloads
        told = [f"payload={self._kept.keep(contents)} for {each.call}" for each, contents in reversed(unreached)]
        return [f"[not reached; the contents are kept: {'; '.join(told)}]"] if told else []

    def write(self, arguments: Arguments) -> ToolResult:
        """Make one write.

        Raises:
            ToolError: it cannot be made, or would not do what was told of it when it was inspected; nothing is written.
        """
        promise, self._promise = self._promise, None
        contents = self._contents(arguments, self._payloads)
        try:
            if not self._tried_ahead and len(self._certain()) > 1:
                self._tried_ahead = True
                self._try_ahead(contents, self._payloads, self._seen)
            return self._write(_change(arguments, contents), _held(promise, arguments))
        except ToolError as error:
            told = f"{error}\n{self._kept_as(arguments, contents)}"
            raise ToolError(told, kind=error.kind, value=error.value) from error

    def forgo(self, arguments: Arguments) -> str:
        """Take what a write that is denied would have written, lest the next write get it; say under which number.

        Raises:
            ToolError: it would have taken nothing.
        """
        self._promise = None
        return self._kept_as(arguments, self._contents(arguments, self._payloads))

    def inspect(self, arguments: Arguments, args: dict[str, Plain]) -> Inspection:
        """What a write would do; the same write, made next, does that or nothing.

        Args:
            arguments: of the call.
            args: the same as the call gives them.
        """
        # What a run that goes on asks about again must still be what somebody has approved.
        held = _held(self._promise, arguments) if self._resumed else None
        self._resumed = False
        payloads, seen, limits = self._payloads.copy(), self._seen.copy(), self._limits.copy()
        digest, refusal, shown = "", "", ""
        paths: tuple[str, ...] = ()
        try:
            contents = self._contents(arguments, payloads)
            paths = self._named(arguments, contents)
            if not self._tried_ahead and len(self._certain()) > 1:
                self._try_ahead(contents, payloads, seen.copy())
            writes = self._planned_by(_change(arguments, contents), Overlay(self._workspace), seen, limits)
            paths = tuple(dict.fromkeys(each.canonical for each in writes)) or paths
            digest = _digest(writes)
            _check_held(held, digest)
            shown = apart.preview(writes, self._replaced(writes))
        except ToolError as error:
            digest, refusal = "", str(error)
            shown = preview.clipped(["This call cannot succeed:", *refusal.split("\n")])
        self._promise = _Promise(_named_call(arguments), digest)
        facts = CallFacts(tool="write_file", args=args, paths=paths, writes=True)
        return Inspection(facts=facts, preview=shown, refusal=refusal)

    def _kept_as(self, arguments: Arguments, contents: tuple[str, ...]) -> str:
        """Keep what was not written, and say so."""
        number = self._kept.keep(contents) if "payload" not in arguments else arguments["payload"]
        return f"(The content is kept: payload={number} stands for it in a repeated call.)"

    def _contents(self, arguments: Arguments, payloads: Payloads) -> tuple[str, ...]:
        """What a call writes: kept contents, or the next payloads, which are taken."""
        count = _contents_taken(arguments)
        if "payload" in arguments:
            return self._kept.get(arguments["payload"], count)
        path = "" if arguments["mode"] == "patch" else arguments["path"]
        return tuple(payloads.take(path) for _ in range(count))

    def _named(self, arguments: Arguments, contents: tuple[str, ...]) -> tuple[str, ...]:
        """The files that a call names, whether or not it can be made."""
        if arguments["mode"] != "patch":
            return (self._workspace.resolve(arguments["path"]),)
        names: list[str] = []
        for section in parse_patch(contents[0]):
            names.append(section.path)
            if isinstance(section, UpdateFile) and section.move_to:
                names.append(section.move_to)
        return tuple(dict.fromkeys(self._workspace.resolve(name) for name in names))

    def _planned_by(self, change: WriteCall, files: Overlay, seen: Seen, limits: StepLimits) -> list[FileWrite]:
        limits.check(change, files.resolve(change.path or "."))
        if apart.is_light(change, files):
            return self._planner.plan(change, files, seen)
        return apart.plan(change, files, seen)

    def _replaced(self, writes: Sequence[FileWrite]) -> dict[str, int]:
        """Sizes of the files that are there, but whose content was not looked at."""
        blind = [each.canonical for each in writes if each.change.old is None and each.origin is None]
        return {path: self._workspace.size(path) for path in blind if self._workspace.exists(path)}

    def _write(self, change: WriteCall, held: str | None) -> ToolResult:
        files = Overlay(self._workspace)
        writes = self._planned_by(change, files, self._seen, self._limits)
        _check_held(held, _digest(writes))
        apply_all(self._workspace, [each.change for each in writes])
        self._limits.count(change, files.resolve(change.path or "."))
        for each in writes:
            _learn(self._seen, each)
            if each.change.data is None:
                self._watch.note(each.canonical)
            else:
                self._watch.remember(each.canonical, each.version, each.text.plain if each.text else None)
        versions = "\n".join(each.version for each in writes if each.version)
        return ToolResult(value=versions, text="\n".join(line for each in writes for line in each.told))

    def _certain(self) -> list[PlannedWrite]:
        return [each for each in self._planned if each.certain]

    def _try_ahead(self, contents: tuple[str, ...], payloads: Payloads, shown: Seen) -> None:
        """At a step's first write, work out those that are sure to follow, on top of each other.

        Args:
            contents: what the first one writes.
            payloads: where the others' contents come from; none is taken.
            shown: learns what a refusal shows.

        Raises:
            ToolError: a later one cannot be made; the first is then not made either.
        """
        files, seen, limits = Overlay(self._workspace), self._seen.copy(), self._limits.copy()
        rest = list(payloads.ahead())
        for number, planned in enumerate(self._certain()):
            if number:
                contents, rest = tuple(rest[: planned.payloads]), rest[planned.payloads :]
            try:
                if "payload" in planned.arguments:
                    contents = self._kept.get(planned.arguments["payload"], _contents_taken(planned.arguments))
                if number and self._is_withheld(planned.arguments, contents):
                    return  # nobody has decided on it yet, and why it fails could tell what is in the file
                self._try(_change(planned.arguments, contents), files, seen, limits, shown)
            except ToolError as error:
                if number == 0:
                    return  # the call itself says so
                raise ToolError(
                    f"Nothing was written: a later write of this block, line {planned.line}, {planned.call}, cannot "
                    f"be made: {error}",
                    kind=error.kind,
                ) from error

    def _is_withheld(self, arguments: Arguments, contents: tuple[str, ...]) -> bool:
        """Whether a write names a file of which nothing is to be told unasked."""
        return any(map(self._withholds, self._named({"mode": "w", **arguments}, contents)))

    def _try(self, change: WriteCall, files: Overlay, seen: Seen, limits: StepLimits, shown: Seen) -> None:
        canonical = files.resolve(change.path or ".")
        try:
            writes = self._planned_by(change, files, seen, limits)
        except StaleError as error:
            if not files.is_pending(canonical):
                now = files.text_file(canonical)  # the refusal shows it
                shown.read(canonical, now.version, now.text.plain)
                raise
            raise ToolError(
                f"{change.path!r}: it addresses lines that an earlier write of the block changes; make both one call",
                kind="ValueError",
            ) from error
        limits.count(change, canonical)
        for each in writes:
            files.put(each.canonical, each.change.data)
            _learn(seen, each)


def _contents_taken(arguments: Arguments) -> int:
    mode = arguments.get("mode", "w")
    check_mode(mode)
    if mode != "patch" and not arguments.get("path"):
        raise ToolError("path must name the file; only mode='patch' does without", kind="ValueError")
    return payloads_taken(mode, len(pairs(arguments.get("edits"))) if mode == "multi_edit" else None, retried=False)


def _change(arguments: Arguments, contents: tuple[str, ...]) -> WriteCall:
    return WriteCall(
        path=arguments.get("path", ""),
        mode=arguments.get("mode", "w"),
        lines={name: arguments[name] for name in _LINE_ARGUMENTS if name in arguments},
        contents=contents,
        version=arguments.get("version"),
        force=arguments.get("force", False),
    )


def _learn(seen: Seen, write: FileWrite) -> None:
    if write.text is None:
        return
    know = seen.read if write.whole else seen.wrote
    know(write.canonical, write.version, write.text.plain)


def _named_call(arguments: Arguments) -> str:
    return json.dumps(arguments, sort_keys=True)


def _held(promise: _Promise | None, arguments: Arguments) -> str | None:
    """What a call was said to do, if it was inspected."""
    return promise.digest if promise is not None and promise.call == _named_call(arguments) else None


def _check_held(held: str | None, digest: str) -> None:
    if held is not None and held != digest:
        raise ToolError(
            "Nothing was written: the files it is about are no longer as they were when this call was decided on. "
            "Look at them again, and repeat the call",
        )


def _digest(writes: Sequence[FileWrite]) -> str:
    digest = hashlib.sha256()
    for write in writes:
        change = write.change
        contents = [None if data is None else hashlib.sha256(data).hexdigest() for data in (change.old, change.data)]
        digest.update(json.dumps([change.path, *contents, change.mode]).encode())
    return digest.hexdigest()
