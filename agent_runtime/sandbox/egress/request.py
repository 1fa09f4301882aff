"""Requests to the proxy and its answers: one CONNECT (RFC 9110, section 9.3.6). Pure."""

from __future__ import annotations

import re

import h11

_LARGEST_HEAD = 8 * 1024
_TARGET = re.compile(rb"(?P<host>[A-Za-z0-9.-]{1,253}):(?P<port>[0-9]{1,5})")
_BODY = frozenset({b"content-length", b"transfer-encoding"})


class RequestError(Exception):
    """A request that is refused.

    Attributes:
        status: the HTTP status to refuse it with.
        reason: why, in a few words of ASCII.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class ConnectRequest:
    """Takes a request's bytes as they come. One connection carries one request.

    Attributes:
        rest: what came after the head; it belongs to the tunnel.
    """

    def __init__(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
        self.rest = b""

    def feed(self, data: bytes) -> tuple[str, int] | None:
        """Take more bytes, none at their end; the host in lower case and the port, or None while the head is not whole.

        Raises:
            RequestError: it asks for anything but a tunnel.
        """
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestError(400, "this is not an HTTP request that the proxy supports") from error
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise RequestError(400, "the request ended before its head did")
        self.rest = self._http.trailing_data[0]
        if event.method != b"CONNECT":
            raise RequestError(405, "plain HTTP is not allowed in this sandbox; use https")
        target = _TARGET.fullmatch(event.target)
        if target is None:
            raise RequestError(403, "hosts can be reached by name only")
        headers = dict(event.headers)
        if _BODY & headers.keys():
            raise RequestError(400, "a CONNECT request has no body")
        # A second opinion on where to is one too many.
        if headers.get(b"host", event.target).lower() not in {event.target.lower(), target["host"].lower()}:
            raise RequestError(400, "the Host header names another host than the request")
        return target["host"].decode("ascii").lower(), int(target["port"])

    def accepted(self) -> bytes:
        """What to answer when the tunnel stands."""
        return self._http.send(h11.Response(status_code=200, reason=b"Connection established", headers=[])) or b""

    @staticmethod
    def refused(error: RequestError) -> bytes:
        """What to answer instead. The reason is in the status line, which is what most programs show."""
        http = h11.Connection(h11.SERVER)  # one that has seen nothing: ours may have come to its end
        text = f"{error.reason}\n".encode("ascii", "replace")
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(text))), ("Connection", "close")]
        response = h11.Response(status_code=error.status, reason=text.strip(), headers=headers)
        parts = (response, h11.Data(data=text), h11.EndOfMessage())
        return b"".join(http.send(part) or b"" for part in parts)
