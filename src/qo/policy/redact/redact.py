"""Removes from a text what a user may not see.

Two things are removed: the values that the caller knows to be secret, in every form they may be written in, and
everything that a rule of `rules.py` finds. This is repeated until nothing more is found, so that the result is final.
A text that needs too many rounds is removed altogether.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from urllib.parse import quote, quote_plus, unquote

from qo.policy.redact.rules import ADDRESS, EMAIL, NAME, PLAIN_WORDS, RULES, SECRET, WORKING_FOLDERS

EVERYTHING = "[removed]"

SHORTEST_SECRET = 6  # characters of a value worth looking for; shorter ones would blank out ordinary text
SHORTEST_ENCODED_SECRET = 8
ROUNDS = 5

URL_PASSWORD = re.compile(r"://[^\s/?#@:]*+:([^\s/?#]+)@")

# On first use: all patterns of the rules take a tenth of a second, which importing qo must not.
_compiled = cache(re.compile)


def redact(text: str, *, secrets: Collection[str] = ()) -> str:
    """The text for a user, with secrets, tokens, home paths and addresses replaced by a word in brackets.

    Each of `secrets` is replaced everywhere, also url-quoted, in base64 or escaped. Other secrets are found by their
    name or shape (see `rules.py`), so a secret that looks like an ordinary word is found only if it is named or given.
    Redacting a redacted text changes nothing. Never raises.
    """
    forms = {form for secret in secrets if len(secret) <= len(text) for form in _forms_of(secret)}
    for _ in range(ROUNDS):
        redacted = _redact_known(text, forms)
        lowered = redacted.lower().replace(SECRET, "")
        for rule in RULES:
            if not rule.hints or any(hint in lowered for hint in rule.hints):
                redacted = _compiled(rule.pattern).sub(rule.shown, redacted)
        if redacted == text:
            return text
        text = redacted
    # Taking something out can bring to light something else, once or twice. A text in which
    # it goes on and on was made for that purpose.
    return EVERYTHING


def secret_values(values: Mapping[str, object]) -> frozenset[str]:
    """Values, however deep, whose name says that they are secret, and the passwords inside of URLs.

    For `os.environ` and payloads, as `secrets` of `redact`. Everything below a secret name counts. Left out is
    what would blank out ordinary text: values under 6 characters, and plain words such as "disabled".
    """
    found: set[str] = set()
    seen: set[int] = set()
    rest: list[tuple[bool, object]] = [(False, values)]
    while rest:
        named_secret, value = rest.pop()
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if id(value) not in seen:
                seen.add(id(value))
                rest += ((named_secret or secret, inner) for secret, inner in _members(value))
            continue
        if not isinstance(value, str | bytes | int | float):
            continue
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        if named_secret:
            found.add(text)
        for password in URL_PASSWORD.findall(text):
            found |= {password, unquote(password)}
    return frozenset(text for text in found if len(text) >= SHORTEST_SECRET and text.lower() not in PLAIN_WORDS)


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is to be hidden: `db_password`, `apiKey`, `X-Auth-Token`, not `max_token_count`."""
    return name not in WORKING_FOLDERS and _compiled(NAME).search(name) is not None


def _members(value: Mapping[object, object] | Iterable[object]) -> Iterator[tuple[bool, object]]:
    if isinstance(value, Mapping):
        # With its number, because `max_tokens` is no secret while `tokens` may be.
        return (
            (is_secret_name(f"{name}={inner}" if isinstance(inner, int) else str(name)), inner)
            for name, inner in value.items()
        )
    return ((False, inner) for inner in value)


# --- Secrets that the caller knows ------------------------------------------------------------------------------------


def _forms_of(secret: str) -> Iterator[str]:
    """A secret as it may stand in a text: as it is, url-quoted, escaped, or somewhere inside of base64."""
    if not secret:
        return
    raw = secret.encode("utf-8", "surrogatepass")
    quoted = (quote(raw), quote(raw, safe=""), quote_plus(raw))
    written = (repr(secret), repr(raw), json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    yield secret
    yield from quoted
    yield from (re.sub("%..", lambda code: code[0].lower(), form) for form in quoted)
    yield from (form.removeprefix("b")[1:-1] for form in written)
    yield html.escape(secret)
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            # A character of base64 holds six bits. Those that hold bits of a neighbour depend on what that is.
            first, end = -(-8 * before // 6), 8 * (before + len(raw)) // 6
            form = encode(b"\0" * before + raw).decode()[first:end]
            if len(form) >= SHORTEST_ENCODED_SECRET:
                yield form


def _redact_known(text: str, forms: Collection[str]) -> str:
    present = [form for form in forms if form in text]
    if not present:
        return text
    # Our own words are among the alternatives so that a secret such as "secret" is not found inside of them.
    own = {SECRET, ADDRESS, EMAIL, EVERYTHING}
    longest_first = sorted({*present, *own}, key=lambda form: (-len(form), form not in own))
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(pattern, lambda found: found[0] if found[0] in own else SECRET, text)
