"""The other side of digest authentication: a check of RFC 7616, written for tests."""

import hashlib
import re
import secrets

from aiohttp import web

__all__ = ["DigestCheck"]

_HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}
_PAIR = re.compile(r'(\w+)=(?:"([^"]*)"|([^ ,]+))')


class DigestCheck:
    """Challenges requests, and checks what they answer.

    Attributes:
        challenges: how many it has made.
        right: answers that were right.
        wrong: answers that were not, but for those with a nonce that has been used up.
    """

    def __init__(
        self,
        user: str,
        password: str,
        *,
        algorithm: str = "SHA-256",
        qop: str = "auth",
        domain: str = "",
        uses_max: int = 1000,
    ) -> None:
        """Begin without a nonce.

        Args:
            user: who may come.
            password: of the user.
            algorithm: as in RFC 7616 §3.3.
            qop: `auth`, `auth-int`, or '': none, as in RFC 2069.
            domain: where else the password is good, says the challenge.
            uses_max: the requests with one nonce.
        """
        self.challenges = self.right = self.wrong = 0
        self._user = user
        self._password = password
        self._algorithm = algorithm
        self._qop = qop
        self._domain = domain
        self._uses_max = uses_max
        #: By nonce, the counts that have come.
        self._used: dict[str, set[str]] = {}

    def challenge_for(self, request: web.BaseRequest, body: bytes) -> str:
        """The challenge to answer a request with; '': its digest is right."""
        given = request.headers.get("Authorization", "")
        if not given:
            return self._challenge()
        scheme, _, rest = given.partition(" ")
        found = {name: a or b for name, a, b in _PAIR.findall(rest)}
        used = self._used.get(found["nonce"], set())
        if len(used) >= self._uses_max:
            return self._challenge(stale=True)
        expected = self._response(found, request, body)
        count = found.get("nc", str(len(used)))
        if (
            (scheme, found["username"], found["uri"])
            != ("Digest", self._user, request.raw_path)
            or not secrets.compare_digest(found["response"], expected)
            or count in used
            or found["nonce"] not in self._used
        ):
            self.wrong += 1
            return self._challenge()
        used.add(count)
        self.right += 1
        return ""

    def _challenge(self, *, stale: bool = False) -> str:
        self.challenges += 1
        nonce = secrets.token_hex(16)
        self._used[nonce] = set()
        fields = ['realm="orders, and \\"bills\\""', f'nonce="{nonce}"', 'opaque="o"']
        fields.append(f"algorithm={self._algorithm}")
        if self._qop:
            fields.append(f'qop="{self._qop}"')
        if self._domain:
            fields.append(f'domain="{self._domain}"')
        if stale:
            fields.append("stale=true")
        return f"Digest {', '.join(fields)}"

    def _response(
        self, found: dict[str, str], request: web.BaseRequest, body: bytes
    ) -> str:
        """RFC 7616 §3.4.1."""
        name = self._algorithm.removesuffix("-sess")

        def h(text: str) -> str:
            return _HASHES[name](text.encode()).hexdigest()

        a1 = h(f'{self._user}:orders, and "bills":{self._password}')
        if name != self._algorithm:
            a1 = h(f"{a1}:{found['nonce']}:{found['cnonce']}")
        a2 = f"{request.method}:{found['uri']}"
        if self._qop == "auth-int":
            a2 += f":{_HASHES[name](body).hexdigest()}"
        if not self._qop:
            return h(f"{a1}:{found['nonce']}:{h(a2)}")
        middle = (found["nonce"], found["nc"], found["cnonce"], found["qop"])
        return h(":".join((a1, *middle, h(a2))))
