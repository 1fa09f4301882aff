"""Recording what is said to a model and what it answers, and giving it back, so that a run becomes a regression test.

`tape` knows the format. Timing is not kept: a replay gives the same chunks as fast as they are read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

from typing_extensions import override

from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import ModelError, ScriptError, SettingsError
from agent_runtime.providers.protocol import Chunk, Provider, Request, ToolCalling
from agent_runtime.providers.tape import (
    VOLATILE,
    Answered,
    Mask,
    Tape,
    TapedRequest,
    TapeWriter,
    calls_tools,
    differences,
    hidden_request,
    read_tape,
    shows_images,
)
from agent_runtime.providers.wrapped import WrappedProvider

_MOST_AHEAD = 40
"""How many requests a replay looks ahead for the one that is made."""


class RecordingProvider(WrappedProvider):
    """Passes everything through, and writes it down: each request, each reply chunk for chunk, and `note`s.

    The file is readable by its owner only, and no file is ever written over. It holds whatever the conversation holds,
    but never the provider's key, which is no part of it.
    """

    def __init__(
        self,
        inner: Provider,
        path: Path | str,
        *,
        about: Mapping[str, Plain] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Begin a recording.

        Args:
            inner: the provider that is asked; closed by `close`.
            path: the file to make.
            about: what to keep of the circumstances, at the file's head.
            secrets: texts that must not reach the file, should the conversation hold them.

        Raises:
            SettingsError: the file exists, or cannot be made.
        """
        super().__init__(inner)
        self._path = Path(path)
        self._tape = TapeWriter(secrets=tuple(secrets))
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise SettingsError(
                f"The recording {path} already exists and is never overwritten; name another file."
            ) from None
        except OSError as error:
            raise SettingsError(f"The recording {path} cannot be made: {error.strerror}.") from error
        self._others: list[Provider] = []
        self._open = True
        self._write(self._tape.header(inner.model, about or {}))

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`.

        Raises:
            ModelError: whatever the inner provider raises, or the recording cannot be written.
        """
        async with aclosing(self._recorded(self._inner, request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def beside(self, other: Provider) -> Provider:
        """Another provider, e.g. of child runs, whose exchanges are in the same recording; closed by `close`."""
        self._others.append(other)
        return _Beside(other, partial(self._recorded, other))

    async def _recorded(self, inner: Provider, request: Request) -> AsyncGenerator[Chunk]:
        number, line = self._tape.asked(request)
        self._write(line)
        given: list[Chunk] = []
        failed: ModelError | None = None
        try:
            async with aclosing(inner.reply(request)) as chunks:
                async for chunk in chunks:
                    given.append(chunk)
                    yield chunk
        except ModelError as error:
            failed = error
            raise
        finally:
            self._write(self._tape.answered(number, given, failed))

    def note(self, kind: str, value: Plain) -> None:
        """Write something beside the exchanges, e.g. an event of the run.

        Raises:
            ModelError: the recording cannot be written.
        """
        self._write(self._tape.note(kind, value))

    async def close(self) -> None:
        """End the recording and close the inner provider; idempotent."""
        if self._open:
            self._open = False
            os.close(self._file)
        for each in (self._inner, *self._others):
            await each.close()

    def _write(self, line: str) -> None:
        """Append a line; a recording that was closed keeps no more."""
        if not self._open:
            return
        data = line.encode("utf-8", "surrogatepass")
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise ModelError(
                f"The recording {self._path} cannot be written: {error.strerror}. "
                "Free some space, or run without recording."
            ) from error


class _Beside(WrappedProvider):
    """A provider whose exchanges another one's recording holds."""

    def __init__(self, inner: Provider, reply: Callable[[Request], AsyncGenerator[Chunk]]) -> None:
        super().__init__(inner)
        self.reply = reply

    async def close(self) -> None:
        """Leave it to the recording."""


class ReplayProvider:
    """Gives the recorded replies in order, and fails loudly when the conversation leaves the recording.

    Attributes:
        tape: the recording.
        differences: where requests differed from the recorded ones, when that is no error.
        departure: how the conversation left the recording, when it did.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        strict: bool = True,
        masks: Iterable[Mask] = VOLATILE,
        secrets: Sequence[str] = (),
    ) -> None:
        """Get ready to replay.

        Args:
            path: the recording.
            strict: whether a request that differs from the recorded one is an error; else it is kept in `differences`.
            masks: what is not compared; `()` compares to the byte, which needs the run's clock and nonce to be given.
            secrets: the texts that were kept out of the recording, so that they are not taken for a difference.

        Raises:
            ScriptError: it cannot be read, or is no recording.
        """
        self._source = str(path)
        self._strict, self._masks, self._secrets = strict, tuple(masks), tuple(secrets)
        self.tape = load_tape(path)
        self._asked = [entry for entry in self.tape.entries if isinstance(entry, TapedRequest)]
        self._open = list(self._asked)
        self._answers = {entry.number: entry for entry in self.tape.entries if isinstance(entry, Answered)}
        self._given = 0
        self.differences: list[str] = []
        self.departure: str | None = None

    @property
    def model(self) -> str:
        """The recorded model."""
        return self.tape.model

    @property
    def sees_images(self) -> bool:
        """Whether the recorded model was shown images."""
        return shows_images(self.tape)

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred where the recorded model was offered tools."""
        return "preferred" if calls_tools(self.tape) else "supported"

    def children(self) -> Provider:
        """The same recording as the model of child runs, which may be another than their parent's."""
        return _ReplayOfChildren(self)

    @property
    def replayed(self) -> int:
        """Requests that were answered."""
        return self._given

    @property
    def remaining(self) -> int:
        """Recorded requests that were not made yet; a test may want none."""
        return len(self._open)

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Give the next recorded reply, chunk for chunk.

        Raises:
            ScriptError: there is none, or the request is not the recorded one; the text shows the first difference.
            ModelError: the recorded reply ended so.
        """
        try:
            answer = self._next(request)
        except ScriptError as error:
            self.departure = str(error)
            raise
        for chunk in answer.chunks:
            yield chunk
        if answer.error is not None:
            raise answer.error

    async def close(self) -> None:
        """Nothing to give back."""

    def _next(self, request: Request) -> Answered:
        if not self.remaining:
            raise ScriptError(
                f"The recording {self._source} has {len(self._asked)} requests, but the conversation makes one more. "
                f"Record the run again if this is intended."
            )
        hidden = hidden_request(request, self._secrets)
        # Child runs ask at the same time as their parent, in any order.
        near = [each for each in self._open[:_MOST_AHEAD] if each.request.child == hidden.child]
        ahead = [each for each in near if len(each.request.messages) == len(hidden.messages)]
        same = (each for each in ahead if next(differences(each.request, hidden, masks=self._masks), None) is None)
        asked = next(same, (near or self._open)[0])
        told = next(differences(asked.request, hidden, masks=self._masks), None)
        if told is not None:
            text = f"Request {asked.number} of {len(self._asked)} differs from the recording {self._source}:\n{told}"
            if self._strict:
                raise ScriptError(text)
            self.differences.append(text)
        answer = self._answers.get(asked.number)
        if answer is None:
            raise ScriptError(
                f"The recording {self._source} ends with request {asked.number}, whose reply is missing: the recording "
                f"process died before it arrived. Record the run again."
            )
        self._given += 1
        self._open.remove(asked)
        return answer


class _ReplayOfChildren(WrappedProvider):
    """A replay as child runs see it."""

    def __init__(self, replay: ReplayProvider) -> None:
        super().__init__(replay)
        self.reply = replay.reply
        self.close = replay.close
        self._tape = replay.tape

    @property
    @override
    def sees_images(self) -> bool:
        """Whether the model of the recorded child runs was shown images."""
        return shows_images(self._tape, child=True)

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        """Preferred where the model of the recorded child runs was offered tools."""
        return "preferred" if calls_tools(self._tape, child=True) else "supported"


def load_tape(path: Path | str) -> Tape:
    """Read a recording from a file.

    Raises:
        ScriptError: it cannot be read, or is no recording.
    """
    try:
        data = Path(path).read_bytes()
        whole = data.rfind(b"\n") + 1  # what follows was cut off, perhaps in the middle of a character
        text = data[:whole].decode("utf-8", "surrogatepass") + data[whole:].decode("utf-8", "replace")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"The recording {path} cannot be read: {error}.") from error
    return read_tape(text, source=str(path))
