"""The parts of frames that an AMQP engine hides, read and written for one connection.

Proton knows neither the map of unsettled deliveries nor the default outcome of an
`attach`, and neither `resume` nor the message format of a `transfer`. So `FrameShim`
stands between it and the socket:

    socket ──▶ receive ──▶ bytes for the engine, with an Attach or a Transfer before
                           the frame that has what the engine does not show
    engine ──▶ send ─────▶ bytes for the socket: attaches with what `answer` was given,
                           transfers whose delivery-tag ends in a mark as resumed

Frames that need none of this pass as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from qos.core.amqp import values
from qos.core.amqp.delivery_states import (
    PeerOutcome,
    numbered,
    read_state,
    read_unsettled,
)
from qos.core.amqp.frame_parts import (
    Attach,
    AttachAnswer,
    InUse,
    LinkKey,
    Part,
    Transfer,
)
from qos.core.amqp.frames import (
    HEAD_BYTES,
    FrameCutter,
    Performative,
    field_bytes,
    fields_of,
    flag,
    list_at,
    number,
    rewritten,
    usual_transfer,
)
from qos.core.amqp.values import DecodeError, decode, descriptor, elements

__all__ = [
    "ABORTED",
    "HANDLES_MAX",
    "RESUMED",
    "FrameShim",
]

#: The most links of a connection, refused ones too, that a peer has not detached.
HANDLES_MAX = 2000

#: Frames that the engine gets at a time: each may be work.
_RUN_FRAMES = 32

#: What the delivery-tag of a transfer ends in that is to leave as resumed, and as
#: resumed and aborted. Without it, its frame has room for these flags.
RESUMED = "~-resumed-~"
ABORTED = "~-aborted-~"
_MARK = b"ed-~"

#: Of a begin: in an answer, the channel of the session that it answers.
_REMOTE_CHANNEL = 0

#: The fields of an attach, and of the source in it.
_NAME, _HANDLE, _ROLE, _SOURCE, _UNSETTLED, _INCOMPLETE = 0, 1, 2, 5, 7, 8
_DEFAULT_OUTCOME = 8
_SOURCE_CODE = 0x28

#: Those of a transfer. It has the handle where an attach has its name.
_TAG, _FORMAT, _STATE, _RESUME, _ABORTED = 2, 3, 7, 8, 9

#: How a disposition begins, and its state.
_DISPOSITION = b"\x00\x53\x15"
_DISPOSITION_STATE = 4

#: The bytes that our attach may have more than that of the peer, without its map.
_ATTACH_BYTES = 250

_FRAME_BYTES_MIN = 512
_FRAME_BYTES_MAX = 0xFFFF_FFFF


class FrameShim:
    """See the module.

    Attributes:
        tracked: the links of which every delivery is told by a Transfer.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        """Begin.

        Args:
            frame_bytes_max: the most bytes of a frame that the peer may send.
        """
        self.tracked: set[LinkKey] = set()
        self._peer = FrameCutter(frame_bytes_max)
        self._engine = FrameCutter(_FRAME_BYTES_MAX)
        # The channels of the peer's sessions, and by ours those of the peer.
        self._sessions: set[int] = set()
        self._channels: dict[int, int] = {}
        # The sessions of the peer that the engine has not answered.
        self._begun = 0
        # The links of the peer by channel and handle, and their keys.
        self._links: dict[tuple[int, int], LinkKey] = {}
        self._keys: set[LinkKey] = set()
        self._answers: dict[LinkKey, AttachAnswer] = {}
        self._peer_frame_bytes = _FRAME_BYTES_MAX
        self._damaged = False

    # -- from the peer -----------------------------------------------------

    def receive(self, data: bytes) -> list[Part]:
        """Take bytes of the peer; see `parts`."""
        return list(self.parts(data))

    def parts(self, data: bytes) -> Iterator[Part]:
        """Take bytes of the peer; gives what the engine is to get, in order.

        A DecodeError is the last part: what is behind it is no AMQP, or (InUse) cannot
        be told apart any more, and is dropped. Nothing else is taken before the end.
        """
        run: list[bytes] = []
        if self._damaged:
            return
        error: DecodeError | None = None
        for frame in self._peer.cut(data):
            try:
                frame = _numbered(frame)
                event = self._read(frame)
            except DecodeError as decode_error:
                error = decode_error
                break
            if event is not None:
                if run:
                    yield b"".join(run)
                    run.clear()
                # The frame itself is alone behind it.
                yield event
                yield frame
                continue
            run.append(frame)
            if len(run) >= _RUN_FRAMES:
                yield b"".join(run)
                run.clear()
        if run:
            yield b"".join(run)
        error = error or self._peer.error
        if error is not None:
            self._damaged = True
            yield error

    def _read(self, frame: bytes) -> Attach | Transfer | None:
        if frame.startswith(b"AMQP"):
            return None
        code, at = list_at(frame)
        if code == Performative.TRANSFER:
            usual = usual_transfer(frame, at)
            if usual is None:
                return self._transfer(frame, at)
            if not self.tracked:
                return None
            key = self._links.get((_channel(frame), usual[0]))
            # A later transfer of a delivery may leave out its tag.
            relevant = key in self.tracked and bool(usual[1])
            return Transfer(key, usual[1], 0, None, False) if key and relevant else None
        if code == Performative.ATTACH:
            return self._attach(frame, at)
        channel = _channel(frame)
        if code == Performative.DETACH:
            fields, _ = fields_of(frame, at)
            self._forget((channel, number(fields, 0)))
        elif code == Performative.BEGIN:
            if channel in self._sessions:
                raise InUse(f"the channel {channel} is in use", at)
            self._sessions.add(channel)
            self._begun += 1
        elif code == Performative.END:
            self._sessions.discard(channel)
            for link_key in [
                link_key for link_key in self._links if link_key[0] == channel
            ]:
                self._forget(link_key)
        elif code == Performative.OPEN:
            fields, _ = fields_of(frame, at)
            size = number(fields, 2, _FRAME_BYTES_MAX)
            self._peer_frame_bytes = max(size, _FRAME_BYTES_MIN)
        return None

    def _forget(self, at: tuple[int, int]) -> None:
        key = self._links.pop(at, None)
        if key is not None:
            self._keys.discard(key)
            self.tracked.discard(key)
            self._answers.pop(key, None)

    def _attach(self, frame: bytes, at: int) -> Attach:
        fields, _ = fields_of(frame, at)
        if len(self._links) >= HANDLES_MAX:
            raise DecodeError(f"more than {HANDLES_MAX} links", at)
        kind, name = decode(field_bytes(fields, _NAME))
        if kind != "string":
            raise DecodeError("the name of a link is no string", at)
        # The role is true for a receiver, and then we send.
        channel, handle = _channel(frame), number(fields, _HANDLE)
        key = channel, str(name), flag(fields, _ROLE)
        if (channel, handle) in self._links:
            raise InUse(f"the handle {handle} is in use", at)
        if key in self._keys:
            raise InUse(f"the link {name!r} is attached on this session", at)
        self._links[channel, handle] = key
        self._keys.add(key)
        unsettled = field_bytes(fields, _UNSETTLED)
        rest = len(frame) - len(unsettled)
        return Attach(
            key,
            read_unsettled(unsettled),
            flag(fields, _INCOMPLETE),
            *_default_outcome(field_bytes(fields, _SOURCE)),
            max(0, self._peer_frame_bytes - rest - _ATTACH_BYTES),
        )

    def _transfer(self, frame: bytes, at: int) -> Transfer | None:
        fields, _ = fields_of(frame, at)
        key = self._links.get((_channel(frame), number(fields, 0)))
        kind, tag = decode(field_bytes(fields, _TAG))
        # A later transfer of a delivery may leave out its tag.
        if key is None or not isinstance(tag, bytes) or kind != "binary":
            return None
        transfer = Transfer(
            key,
            tag,
            number(fields, _FORMAT),
            read_state(field_bytes(fields, _STATE)),
            flag(fields, _RESUME),
        )
        relevant = key in self.tracked or transfer.resume or transfer.message_format
        return transfer if relevant else None

    # -- to the peer -------------------------------------------------------

    def answer(self, key: LinkKey, answer: AttachAnswer) -> None:
        """Add this to our next attach of a link."""
        self._answers[key] = answer

    def send(self, data: bytes) -> bytes:
        """Take bytes of the engine; returns what the peer is to get."""
        frames = self._engine.cut(data)
        whole = b"".join(frames)
        if not self._answers and not self._begun and _MARK not in whole:
            return whole
        return b"".join([self._written(frame) for frame in frames])

    def _written(self, frame: bytes) -> bytes:
        if frame.startswith(b"AMQP"):
            return frame
        code, at = list_at(frame)
        if code == Performative.ATTACH and self._answers:
            return self._answered(frame, at)
        if code == Performative.TRANSFER and _MARK in frame:
            return _resumed(frame, at)
        if code == Performative.BEGIN and self._begun:
            fields, _ = fields_of(frame, at)
            self._channels[_channel(frame)] = number(fields, _REMOTE_CHANNEL)
            self._begun -= 1
        return frame

    def _answered(self, frame: bytes, at: int) -> bytes:
        fields, _ = fields_of(frame, at)
        channel = self._channels[_channel(frame)]
        # Our role is true if we receive.
        key = channel, str(decode(fields[_NAME])[1]), not flag(fields, _ROLE)
        answer = self._answers.pop(key, None)
        if answer is None:
            return frame
        changes = {_UNSETTLED: answer.unsettled}
        changes[_INCOMPLETE] = values.boolean(answer.incomplete)
        source = field_bytes(fields, _SOURCE)
        if answer.default_outcome and source != values.NULL:
            changes[_SOURCE] = _with_default(source, answer.default_outcome)
        return rewritten(frame, at, changes)


def _channel(frame: bytes) -> int:
    return int.from_bytes(frame[6:8], "big")


def _numbered(frame: bytes) -> bytes:
    """A disposition whose state has a number as its descriptor; others as they are.

    A symbol is as good (types §1.1.2), but proton knows the numbers only.
    """
    if not frame.startswith(_DISPOSITION, HEAD_BYTES) or b":list" not in frame:
        return frame
    at = HEAD_BYTES + len(_DISPOSITION)
    fields, _ = fields_of(frame, at)
    state = field_bytes(fields, _DISPOSITION_STATE)
    if state == values.NULL:
        return frame
    return rewritten(frame, at, {_DISPOSITION_STATE: numbered(state)})


def _default_outcome(source: bytes) -> tuple[PeerOutcome | None, bytes]:
    if source == values.NULL:
        return None, b""
    _, at = descriptor(source, 0)
    default_bytes = field_bytes(elements(source[at:]), _DEFAULT_OUTCOME)
    state = read_state(default_bytes)
    return (state, default_bytes) if isinstance(state, PeerOutcome) else (None, b"")


def _with_default(source: bytes, outcome: bytes) -> bytes:
    _, at = descriptor(source, 0)
    fields = elements(source[at:])
    fields += [values.NULL] * (_DEFAULT_OUTCOME + 1 - len(fields))
    fields[_DEFAULT_OUTCOME] = outcome
    return source[:at] + values.pack_list(fields)


def _resumed(frame: bytes, at: int) -> bytes:
    fields, _ = fields_of(frame, at)
    tag = decode(fields[_TAG])[1]
    assert isinstance(tag, bytes)
    for mark in (RESUMED, ABORTED):
        ending = mark.encode()
        if tag.endswith(ending):
            changes = {_TAG: values.binary(tag.removesuffix(ending))}
            changes[_RESUME] = values.boolean(True)
            if mark is ABORTED:
                changes[_ABORTED] = values.boolean(True)
            return rewritten(frame, at, changes)
    return frame
