"""No planted secret comes through, wherever it stands.

The secrets are made here from pieces, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from urllib.parse import quote

import pytest

from qo.policy.redact.redact import redact

HEX = "0123456789abcdef"
SMALL = string.ascii_lowercase + string.digits
CAPITALS = string.ascii_uppercase + string.digits
ALPHANUMERIC = string.ascii_letters + string.digits
BASE32 = string.ascii_uppercase + "234567"
BASE64 = ALPHANUMERIC + "+/"
BASE64_URL = ALPHANUMERIC + "-_"

VISIBLE_PART = 8  # characters of a secret that must not remain in one piece


def made(alphabet: str, length: int, seed: str) -> str:
    """The same random text in every run, with a letter and a digit in it."""
    draw = random.Random(f"{seed} {length}")
    return "".join(draw.choices(alphabet, k=length - 2)) + alphabet[-1] + alphabet[10]


def prefixed(*rows: tuple[str, str, int]) -> dict[str, str]:
    return {f"{prefix}…": prefix + made(alphabet, length, prefix) for prefix, alphabet, length in rows}


def key_block(kind: str, *, ended: bool = True) -> str:
    lines = "\n".join(made(BASE64, 64, f"{kind}{line}") for line in range(6))
    dashes = "-" * 5
    return f"{dashes}BEGIN {kind}{dashes}\n{lines}\n" + (f"{dashes}END {kind}{dashes}" if ended else "")


def web_token(parts: int) -> str:
    header = "ey" + "JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    return ".".join([header, *(made(BASE64_URL, 43, f"jwt{part}") for part in range(parts - 1))])


SHAPED = {
    **prefixed(
        *((f"gh{kind}_", ALPHANUMERIC, 36) for kind in "pousr"),
        ("github_" + "pat_", ALPHANUMERIC + "_", 82),
        *((f"gl{kind}-", BASE64_URL, 20) for kind in ("pat", "ptt", "dt", "rt")),
        *((f"xox{kind}-", SMALL + "-", 40) for kind in "bpas"),
        ("xapp" + "-1-", CAPITALS, 30),
        *((f"{kind}_live_", ALPHANUMERIC, 24) for kind in ("sk", "rk", "pk")),
        ("sk_" + "test_", ALPHANUMERIC, 24),
        ("wh" + "sec_", ALPHANUMERIC, 32),
        ("s" + "k-", ALPHANUMERIC, 48),
        *((f"sk-{kind}-", BASE64_URL, 60) for kind in ("proj", "svcacct", "admin", "ant-api03", "or-v1", "lf")),
        ("AI" + "za", BASE64_URL, 35),
        ("ya" + "29.", BASE64_URL, 60),
        ("GOC" + "SPX-", BASE64_URL, 28),
        ("np" + "m_", ALPHANUMERIC, 36),
        ("py" + "pi-AgEIcHlwaS5vcmc", BASE64_URL, 70),
        ("h" + "f_", string.ascii_letters + "0", 34),
        ("gs" + "k_", ALPHANUMERIC, 52),
        ("r" + "8_", ALPHANUMERIC, 37),
        ("xa" + "i-", ALPHANUMERIC, 80),
        ("pp" + "lx-", ALPHANUMERIC, 48),
        ("shp" + "at_", HEX, 32),
        ("dop" + "_v1_", HEX, 64),
        ("da" + "pi", HEX, 32),
        ("gl" + "sa_", ALPHANUMERIC, 32),
        ("lin" + "_api_", ALPHANUMERIC, 40),
        ("nt" + "n_", ALPHANUMERIC, 46),
        ("secr" + "et_", ALPHANUMERIC, 43),
        ("NR" + "AK-", CAPITALS, 27),
        ("PM" + "AK-", HEX, 24),
        ("fig" + "d_", ALPHANUMERIC, 40),
        ("dckr" + "_pat_", ALPHANUMERIC, 27),
        ("hv" + "s.", BASE64_URL, 90),
        ("dp." + "pt.", ALPHANUMERIC, 43),
        ("sq0" + "csp-", BASE64_URL, 43),
        ("sb_" + "secret_", BASE64_URL, 31),
        ("ke" + "y-", HEX, 32),
        ("pu" + "l-", HEX, 40),
        ("AK" + "IA", BASE32, 16),
        ("AS" + "IA", BASE32, 16),
        ("S" + "K", HEX, 32),
        ("A" + "C", HEX, 32),
        ("AT" + "ATT3", BASE64_URL, 180),
        ("AGE-" + "SECRET-KEY-1", CAPITALS, 58),
        ("LT" + "AI", ALPHANUMERIC, 20),
    ),
    "AWS secret key": made(BASE64, 40, "aws"),
    "AWS secret key with slashes": "wJ4lrXUtnF3MI/K7MD3NG/bPxRf1CY" + "Z9q2LwT8vB",
    "SendGrid": f"S{'G.'}{made(BASE64_URL, 22, 'sg1')}.{made(BASE64_URL, 43, 'sg2')}",
    "Telegram bot": f"{7_123_456_789}:{'AA'}{made(BASE64_URL, 33, 'telegram')}",
    "Discord bot": f"M{made(ALPHANUMERIC, 23, 'd1')}.{made(ALPHANUMERIC, 6, 'd2')}.{made(BASE64_URL, 38, 'd3')}",
    "web token": web_token(3),
    "encrypted web token": web_token(5),
    "web token cut short": web_token(3)[:60],
    "private key": key_block("PRIVATE KEY"),
    "RSA private key": key_block("RSA PRIVATE KEY"),
    "SSH private key": key_block("OPENSSH PRIVATE KEY"),
    "PGP private key": key_block("PGP PRIVATE KEY BLOCK"),
    "private key cut short": key_block("EC PRIVATE KEY", ended=False),
    "SSH key": "AAAA" + "B3NzaC1yc2EAAAADAQABAAABgQ" + made(BASE64, 120, "ssh"),
    "hex of 32": made(HEX, 32, "hex"),
    "hex of 40": made(HEX, 40, "hex"),
    "hex of 64": made(HEX, 64, "hex"),
    "hex in capitals": made(HEX, 64, "capitals").upper(),
    "base64 of 44": made(BASE64, 43, "base64") + "=",
    "base64 of 88": made(BASE64, 86, "base64") + "==",
    "base64 for URLs": made(BASE64_URL, 43, "url"),
    "letters and digits": made(ALPHANUMERIC, 40, "alphanumeric"),
    "small letters and digits": made(SMALL, 40, "small"),
    "base32": made(BASE32, 52, "base32"),
    "Mailchimp": made(HEX, 32, "mailchimp") + "-us21",
}

# Nothing but its name gives such a secret away.
UNSHAPED = {
    "short": "hunt3r",
    "a word": "swordfish",
    "a longer word": "correcthorsebattery",
    "words with dashes": "correct-horse-battery-staple",
    "digits": "4815162342",
    "with marks": "Tr0ub4dor&3,pass;word",
    "with brackets": "p4ss(w0rd)[ok]{yes}ok",
    "with slashes": "p4ss/w0rd\\back\\slash",
    "with an at sign": "p4ss@w0rd@host",
    "with colons": "p4ss:w0rd:again",
    "with equals signs": "cGFzc3dvcmQ==",
    "with percent signs": "p4ss%20w0rd%",
    "in another alphabet": "пароль-Passwört-密码密码",
}
UNSHAPED_AND_WRITTEN_IN_QUOTES = {
    **UNSHAPED,
    "with spaces": "correct horse battery staple",
    "with a quote": "it's my p4ssword",
    "with both quotes": 'it\'s "my" p4ssword',
    "with a line end": "first half\nsecond half",
}

ANYWHERE = {
    "a message": "The request with {} was refused.",
    "the end of a message": "refused: {}",
    "quotes": "invalid literal: '{}'",
    "locals": "{{'x': 3, 'value': '{}', 'y': None}}",
    "an object": "Config(value='{}', retries=3)",
    "a pair": "value={}, retries=3",
    "JSON": '{{"value":"{}","retries":3}}',
    "a URL's path": "404 for https://api.example.com/v1/{}/items",
    "a URL's query": "404 for https://api.example.com/v1?value={}&page=2",
    "a path": "No such file: '/srv/data/{}/out.txt'",
    "several lines": "first line\n    {}\nlast line",
    "XML": "<value>{}</value>",
    "Markdown": "`{}`",
}
BESIDE_A_NAME = {
    "a pair": "db_password={}",
    "a pair among others": "host=db password={} dbname=app",
    "an ODBC string": "UID=sa;PWD={};Server=db",
    "YAML": "user: bob\npassword: {}\nport: 5432",
    "the environment": "PGPASSWORD={} psql -h db",
    "an option": "mysql --password {} --verbose",
    "an option with =": "mysql --password={} --verbose",
    "a header": "GET / HTTP/1.1\r\nAuthorization: Bearer {}\r\nAccept: */*",
    "XML": "<password>{}</password>",
}


def assert_gone(secret: str, shown: str) -> None:
    length = min(len(secret), VISIBLE_PART)
    parts = {secret[start : start + length] for start in range(len(secret) - length + 1)}
    assert [part for part in parts if part in shown] == [], shown


def test_enough_secrets_are_planted() -> None:
    assert len(SHAPED | UNSHAPED_AND_WRITTEN_IN_QUOTES) >= 80


@pytest.mark.parametrize("place", ANYWHERE)
@pytest.mark.parametrize("kind", SHAPED)
def test_a_secret_of_known_shape_is_found_anywhere(kind: str, place: str) -> None:
    assert_gone(SHAPED[kind], redact(ANYWHERE[place].format(SHAPED[kind])))


@pytest.mark.parametrize("kind", SHAPED)
def test_a_secret_of_known_shape_is_found_when_its_line_ends_are_escaped(kind: str) -> None:
    shown = redact(repr({"value": SHAPED[kind]}))

    assert_gone(repr(SHAPED[kind])[1:-1], shown)


@pytest.mark.parametrize("place", BESIDE_A_NAME)
@pytest.mark.parametrize("kind", UNSHAPED)
def test_a_secret_without_shape_is_found_beside_its_name(kind: str, place: str) -> None:
    assert_gone(UNSHAPED[kind], redact(BESIDE_A_NAME[place].format(UNSHAPED[kind])))


@pytest.mark.parametrize("kind", UNSHAPED_AND_WRITTEN_IN_QUOTES)
@pytest.mark.parametrize(
    "write",
    [
        lambda secret: f"{{'n': 1, 'password': {secret!r}, 'm': 2}}",
        lambda secret: f"Config(n=1, api_key={secret!r}, m=2)",
        lambda secret: f"Config(n=1, api_key=SecretStr({secret!r}), m=2)",
        lambda secret: f"Config(n=1, api_key={secret.encode()!r}, m=2)",
        lambda secret: json.dumps({"n": 1, "clientSecret": secret, "m": 2}),
        lambda secret: json.dumps({"n": 1, "clientSecret": secret, "m": 2}, ensure_ascii=False, indent=2),
        lambda secret: json.dumps(json.dumps({"n": 1, "access-token": secret, "m": 2})),
        lambda secret: f"Command {['mysql', '--password', secret, '-v']!r} returned 1",
        lambda secret: f"{[('accept', '*/*'), ('x-api-key', secret)]!r}",
        lambda secret: f"wrong password {secret!r} for user 'bob'",
    ],
    ids=[
        "locals",
        "object",
        "SecretStr",
        "bytes",
        "JSON",
        "JSON on lines",
        "JSON in JSON",
        "command",
        "pairs",
        "words",
    ],
)
def test_a_quoted_secret_is_found_beside_its_name_to_its_last_character(kind: str, write: Callable[[str], str]) -> None:
    secret = UNSHAPED_AND_WRITTEN_IN_QUOTES[kind]
    shown = redact(write(secret))

    assert_gone(secret, shown)
    assert_gone(json.dumps(secret)[1:-1], shown)
    assert_gone(repr(secret)[1:-1], shown)


@pytest.mark.parametrize("kind", UNSHAPED_AND_WRITTEN_IN_QUOTES)
@pytest.mark.parametrize("scheme", ["postgresql://bob:{}@db.example.com:5432/app", "redis://:{}@cache.example.com/0"])
def test_a_password_in_a_url_is_found(kind: str, scheme: str) -> None:
    secret = quote(UNSHAPED_AND_WRITTEN_IN_QUOTES[kind], safe="")
    shown = redact(f"cannot connect to {scheme.format(secret)}")

    assert_gone(secret, shown)
    assert "://[secret]@" in shown
    assert ".example.com" in shown


@pytest.mark.parametrize("kind", ["with an at sign", "with colons", "with slashes", "with marks"])
def test_a_password_in_a_url_is_found_though_it_should_have_been_quoted(kind: str) -> None:
    shown = redact(f"cannot connect to postgresql://bob:{UNSHAPED[kind]}@db.example.com/app")

    assert_gone(UNSHAPED[kind], shown)
    assert shown == "cannot connect to postgresql://[secret]@db.example.com/app"
