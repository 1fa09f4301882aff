"""Writes: what a call of `write_file` would do to files, and doing just that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.errors import ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.tools import apart
from agent_runtime.tools.changes import FileWrite, Planner, StepLimits
from agent_runtime.tools.planned import Planned, refused
from agent_runtime.workspace.changes import StaleError, WriteCall, check_mode, contents_taken, pairs
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.overlay import Overlay, TextFile
from agent_runtime.workspace.patches import UpdateFile, parse_patch
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.staging import apply_all, is_unchanged
from agent_runtime.workspace.watch import Watch

CHANGED_MEANWHILE = (
    "Nothing was written: the files it is about are no longer as they were when this call was decided on. "
    "Look at them again, and repeat the call"
)
_LINE_ARGUMENTS = ("start_line", "end_line", "after_line", "edits")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """All that a plan depends on: the files, what the agent knows of them, and what the step has done so far."""

    files: Overlay
    seen: Seen
    limits: StepLimits

    def after(self, change: WriteCall, writes: Sequence[FileWrite]) -> _Basis:
        """The same as if a write had been made."""
        seen, limits = self.seen.copy(), self.limits.copy()
        limits.count(change, self.files.resolve(change.path or "."))
        for each in writes:
            _learn(seen, each)
        files = self.files.with_pending({each.canonical: each.change.data for each in writes})
        return _Basis(files=files, seen=seen, limits=limits)


class Writer:
    """Plans writes and makes them, within the limits of a step."""

    def __init__(
        self, workspace: Workspace, seen: Seen, watch: Watch, withholds: Callable[[str], bool] = lambda _path: False
    ) -> None:
        """Write in `workspace`, and keep `seen` and `watch` informed.

        Args:
            workspace: where.
            seen: what the agent knows of the files.
            watch: what they are like.
            withholds: whether nothing is to be told about a file that the call does not name, by its canonical path.
        """
        self._workspace = workspace
        self._withholds = withholds
        self._seen = seen
        self._watch = watch
        self._planner = Planner()
        self._limits = StepLimits()

    def begin_step(self) -> None:
        """Reset the limits of a step."""
        self._limits = StepLimits()

    def state(self) -> dict[str, Plain]:
        """Where the step stands; see `resume`."""
        bases: dict[str, Plain] = {path: [version, *lines] for path, (version, lines) in self._seen.bases().items()}
        return {"whole_chars": self._limits.whole_chars, "edited": [*sorted(self._limits.edited)], "bases": bases}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a step, after the files that it knows were read again.

        Args:
            state: what `state` gave when the step was paused.
        """
        self._limits = StepLimits(state.get("whole_chars", 0), set(state["edited"]))
        for path, (version, *lines) in state["bases"].items():
            self._seen.put_back(path, version, tuple(lines))

    def plan(self, args: Mapping[str, Any]) -> Planned:
        """Work out what a write would do.

        Args:
            args: of the call, by name; None is as good as left out.
        """
        return self._plan(_Basis(files=Overlay(self._workspace), seen=self._seen, limits=self._limits), args)

    def _plan(self, basis: _Basis, args: Mapping[str, Any]) -> Planned:
        files = basis.files
        named = {name: value for name, value in args.items() if name != "contents"}
        facts = CallFacts(tool="write_file", args=named, writes=True)
        try:
            change = _change({name: value for name, value in args.items() if value is not None})
            facts = replace(facts, paths=_named(change, files))
            basis.limits.check(change, files.resolve(change.path or "."))
            planner = self._planner if apart.is_light(change, files) else apart
            writes = planner.plan(change, files, basis.seen)
        except StaleError as error:  # its line numbers refer to lines that have changed; the refusal shows how they are
            path = str(args["path"])
            canonical = files.resolve(path)
            if files.is_pending(canonical):
                told = f"{path!r}: it addresses lines that an earlier write of the block changes; make both one call"
                return refused(facts, ToolError(told, kind="ValueError"))
            shown = partial(self._refuse, error, canonical, files.text_file(canonical))
            return replace(refused(facts, error), apply=shown)
        except ToolError as error:
            return refused(facts, error)
        digest = hashlib.sha256()
        for write in writes:
            each = write.change
            contents = [None if data is None else hashlib.sha256(data).hexdigest() for data in (each.old, each.data)]
            digest.update(json.dumps([each.path, *contents, each.mode]).encode())
        return Planned(
            facts=replace(facts, paths=tuple(dict.fromkeys(each.canonical for each in writes)) or facts.paths),
            preview=partial(self._preview, writes),
            apply=partial(self._apply, change, files, writes),
            digest=digest.hexdigest(),
            is_current=partial(self._is_current, files, writes),
            follow=partial(self._follow, basis, change, writes),
        )

    def _refuse(self, error: StaleError, canonical: str, shown: TextFile) -> NoReturn:
        self._seen.read(canonical, shown.version, shown.text.plain)
        raise error

    def _follow(
        self, basis: _Basis, change: WriteCall, writes: Sequence[FileWrite], args: Mapping[str, Any]
    ) -> Planned | None:
        """The plan of a later write; None for one of a file of which nothing is to be told unasked.

        Nobody has decided on that one yet, and why it fails could tell what is in the file.
        """
        planned = self._plan(basis.after(change, writes), args)
        return None if any(map(self._withholds, planned.facts.paths)) else planned

    def _preview(self, writes: Sequence[FileWrite]) -> str:
        """The diff; of files that are there but whose content was not looked at, their sizes."""
        blind = [each.canonical for each in writes if each.change.unread]
        replaced = {path: self._workspace.size(path) for path in blind if self._workspace.exists(path)}
        return apart.preview(writes, replaced)

    def _is_current(self, files: Overlay, writes: Sequence[FileWrite]) -> bool:
        return files.is_on_disk() and all(is_unchanged(self._workspace, each.change) for each in writes)

    def _apply(self, change: WriteCall, files: Overlay, writes: Sequence[FileWrite]) -> ToolResult:
        """Make a write as it was planned.

        Raises:
            ToolError: its files are not as they were when it was planned; nothing is written.
        """
        if not self._is_current(files, writes):
            raise ToolError(CHANGED_MEANWHILE)
        self.adopt(writes)
        self._limits.count(change, files.resolve(change.path or "."))
        versions = "\n".join(each.version for each in writes if each.version)
        return ToolResult(value=versions, text="\n".join(line for each in writes for line in each.told))

    def adopt(self, writes: Sequence[FileWrite]) -> None:
        """Make writes, all or none, and take note of the new versions.

        Raises:
            ToolError: a file is not as it was when the writes were planned.
        """
        apply_all(self._workspace, [each.change for each in writes])
        for each in writes:
            _learn(self._seen, each)
            if each.change.data is None:
                self._watch.note(each.canonical)
            else:
                self._watch.remember(each.canonical, each.version, each.text.plain if each.text else None)


def contents_of_call(args: Mapping[str, Any]) -> int:
    """How many contents a call of `write_file` takes.

    Args:
        args: of the call, by name, without those that are None.

    Raises:
        ToolError: it has no such mode, no path, or no proper edits.
    """
    mode = args.get("mode", "w")
    check_mode(mode)
    if mode != "patch" and not args.get("path"):
        raise ToolError("path must name the file; only mode='patch' does without", kind="ValueError")
    return contents_taken(mode, len(pairs(args.get("edits"))) if mode == "multi_edit" else None)


def _change(args: Mapping[str, Any]) -> WriteCall:
    """A write from the arguments of its call.

    Raises:
        ToolError: as for `contents_of_call`, or its contents are too many or too few.
    """
    count, contents = contents_of_call(args), tuple(args.get("contents", ()))
    if len(contents) != count:
        raise ToolError(f"contents: this write takes {count}, and {len(contents)} came with it", kind="ValueError")
    return WriteCall(
        path=args.get("path", ""),
        mode=args.get("mode", "w"),
        lines={name: args[name] for name in _LINE_ARGUMENTS if name in args},
        contents=contents,
        version=args.get("version"),
        force=args.get("force", False),
    )


def _named(change: WriteCall, files: Overlay) -> tuple[str, ...]:
    """The files that a write names, whether or not it can be made."""
    if change.mode != "patch":
        return (files.resolve(change.path),)
    names: list[str] = []
    for section in parse_patch(change.contents[0]):
        names.append(section.path)
        if isinstance(section, UpdateFile) and section.move_to:
            names.append(section.move_to)
    return tuple(dict.fromkeys(files.resolve(name) for name in names))


def _learn(seen: Seen, write: FileWrite) -> None:
    if write.text is None:
        return
    know = seen.read if write.whole else seen.wrote
    know(write.canonical, write.version, write.text.plain)
