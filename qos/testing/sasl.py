"""The server's side of SASL: PLAIN, SCRAM-SHA-1 and SCRAM-SHA-256, without channel binding.

An exchange is a generator. It is sent the client's data, yields each challenge, and
returns the user who has logged in. It knows nothing of XML, base64 on the wire, or
connections.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

# RFC 5802 §5.1 and RFC 7677 §4: at least 4096. The least is used: each login has to do
# them.
SCRAM_ITERATIONS = 4096


class SaslFailure(Exception):
    """The exchange is over; ``condition`` is an RFC 6120 §6.5 error condition."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


@dataclass(frozen=True, slots=True)
class Success:
    """The client is ``username``; ``data`` goes with the success unless it is empty."""

    username: str
    data: bytes = b""


# The first challenge is empty, and its answer is the client's initial response.
Exchange = Generator[bytes, bytes, Success]
Passwords = Mapping[str, str]


def plain(passwords: Passwords) -> Exchange:
    """Log in by RFC 4616."""
    fields = _text((yield b"")).split("\0")
    if len(fields) != 3:
        raise SaslFailure("malformed-request")
    authzid, username, password = fields
    expected = passwords.get(username)
    if expected is None or not hmac.compare_digest(
        _prepared(password), _prepared(expected)
    ):
        raise SaslFailure("not-authorized")
    _check_authzid(authzid, username)
    return Success(username)


def scram(algorithm: str, passwords: Passwords) -> Exchange:
    """Log in by RFC 5802 with this hashlib algorithm."""
    # client-first-message = gs2-cbind-flag "," [authzid] "," username "," nonce
    client_first = _text((yield b""))
    flag, _, rest = client_first.partition(",")
    authzid, _, client_first_bare = rest.partition(",")
    # "y": the client could do channel binding; "p": it insists on it.
    if flag not in ("n", "y"):
        raise SaslFailure("malformed-request")
    first = _attributes(client_first_bare, "n", "r")
    username = _unescaped(first["n"])
    password = passwords.get(username)
    if password is None:
        raise SaslFailure("not-authorized")

    nonce = first["r"] + secrets.token_urlsafe(18)
    salt = secrets.token_bytes(16)
    server_first = f"r={nonce},s={_b64(salt)},i={SCRAM_ITERATIONS}"
    client_final = _text((yield server_first.encode()))
    final = _attributes(client_final, "c", "r", "p")
    gs2_header = client_first.removesuffix(client_first_bare)
    if final["c"] != _b64(gs2_header.encode()) or final["r"] != nonce:
        raise SaslFailure("not-authorized")

    without_proof = client_final.rpartition(",p=")[0]
    auth_message = f"{client_first_bare},{server_first},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac(algorithm, _prepared(password), salt, SCRAM_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key, usedforsecurity=False).digest()
    signature = hmac.digest(stored_key, auth_message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    if not hmac.compare_digest(final["p"].encode(), _b64(proof).encode()):
        raise SaslFailure("not-authorized")
    _check_authzid(_unescaped(authzid.removeprefix("a=")), username)
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    verifier = hmac.digest(server_key, auth_message, algorithm)
    return Success(username, f"v={_b64(verifier)}".encode())


# In the order of preference in which they are offered.
MECHANISMS: Mapping[str, Callable[[Passwords], Exchange]] = {
    "SCRAM-SHA-256": lambda passwords: scram("sha256", passwords),
    "SCRAM-SHA-1": lambda passwords: scram("sha1", passwords),
    "PLAIN": plain,
}


def decode(text: str) -> bytes:
    """Decode base64 as RFC 6120 §6.4.2 carries it: "=" is empty data.

    Raises:
        SaslFailure: It is not base64.
    """
    try:
        return b"" if text == "=" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslFailure("incorrect-encoding") from None


def encode(data: bytes) -> str:
    """Encode for the wire; the inverse of ``decode``."""
    return _b64(data) or "="


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslFailure("malformed-request") from None


def _prepared(password: str) -> bytes:
    """The password in the form of RFC 4013, in which equivalent spellings are equal."""
    return unicodedata.normalize("NFKC", password).encode()


def _attributes(message: str, *names: str) -> dict[str, str]:
    """Read ``a=1,b=2``, which must hold ``names``; extensions are ignored."""
    attributes = [field.partition("=") for field in message.split(",")]
    if message.startswith("m=") or not all(
        any(name == key and value for key, _, value in attributes) for name in names
    ):
        raise SaslFailure("malformed-request")
    return {key: value for key, _, value in attributes}


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _check_authzid(authzid: str, username: str) -> None:
    """Refuse a client that wants to act for another user."""
    if authzid and authzid.partition("@")[0] != username:
        raise SaslFailure("invalid-authzid")
