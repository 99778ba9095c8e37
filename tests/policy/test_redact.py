"""What of a text a user may see: ordinary messages whole, names without their values, no addresses, no home."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

from qo.policy.redact.redact import redact, secret_values
from qo.policy.redact.rules import LONG_TOKEN_BEGINNINGS, TOKEN_BEGINNINGS

ORDINARY = r"""
division by zero
[Errno 2] No such file or directory: 'build/out.txt'
HTTP 503 Service Unavailable
401 Client Error: Unauthorized for url: https://api.example.com/v1/models?page=2
Expected `int`, got `str` - at `$.age`
Expected `str`, got `int` - at `$.token`
key error: 'name'
KeyError: 'password'
name 'token' is not defined
'NoneType' object has no attribute 'secret'
f() missing 3 required positional arguments: 'token', 'user', and 'secret'
__init__() got an unexpected keyword argument 'api_key'
Unexpected token: ','
Unexpected token '<', "<!DOCTYPE "... is not valid JSON
not well-formed (invalid token): line 1, column 5
Invalid token: expected 3 parts, got 2
Token expired. Password must be at least 8 characters.
password authentication failed for user "postgres"
password: field required
max_tokens=4096 is too large: tokens: 128000, completion_tokens: 1500000
secret_name='db-credentials', token_type: bearer, tokenizer='gpt2', password_file=build/pw
author: Bob, passenger: Bob, compass: north, primary key: user, sort(key=len), pass: 3, fail: 2
cookies={}, auth=None, token='', password=...
the following arguments are required: --token, --password
argument --token: expected one argument
Basic authentication required, bearer token missing, Basic iterables.
Set the OPENAI_API_KEY environment variable
requires foo==1.2.3.4, version 1.2.3.4 or v1.2.3.4, Python 3.11.7
started 2024-05-01T12:30:45.123456+00:00, ended 12:30:45, ratio 3:4, x[1::2], x[::2], a::b
connect to localhost:5432 refused, http://localhost:8080/api/users/12, http://[::1]:80/
https://example.com/home/about, https://medium.com/@user/post, https://unpkg.com/vue@3.2.1/dist/vue.js
job 01HV3K9ZJ5Q2W8X7Y6T4R3E2D1 failed, job-01HV3K9ZJ5Q2W8X7Y6T4R3E2D1-attempt-2
job 123e4567-e89b-12d3-a456-426614174000 failed
commit 3f2a9c1d4e5b6a7f8091a2b3c4d5e6f708192a3b, sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
https://github.com/python/cpython/commit/3f2a9c1d4e5b6a7f8091a2b3c4d5e6f708192a3b
test_a_job_blocked_in_one_group_takes_nothing_from_its_others2
TestSomeVeryLongClassNameThatDescribesSomethingInDetail2
numpy-1.26.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
/usr/lib/python3.11/site-packages/requests/adapters.py, C:\Program Files\Python\python.exe
my-service-deployment-7d9f8b6c5d-x2x9z, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
object at 0x7f3c2a1b4d60, 1234567890123456789012345678901234567890, 3.141592653589793238462643383279502884
std::vector<int>, threading.local object, self.local, src/index.local.ts:3:4, pkg.internal.loader
~/projects/app.py, HEAD~2, took ~5 minutes, ~ten tries
SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1007)
duplicate key value violates unique constraint "users_pkey", Key (id)=(5) already exists.
Error: Cannot find module 'node:fs/promises' (node:internal/modules/cjs/loader:1080)
'utf-8' codec can't decode byte 0xff in position 0: invalid start byte
unsupported operand type(s) for +: 'int' and 'str'
""".strip("\n").splitlines()


@pytest.mark.parametrize("message", ORDINARY)
def test_an_ordinary_message_stays_as_it_is(message: str) -> None:
    assert redact(message) == message


SECRET_NAMES = (
    *("password", "PASSWORD", "db_password", "userPassword", "DBPassword", "PGPASSWORD", "passwd", "passphrase"),
    *("mysql_pwd", "userPwd", "db_pass", "secret", "client_secret", "clientSecret", "SECRET_KEY", "otp_secret"),
    *("token", "tokens", "access_token", "authToken", "X-Auth-Token", "csrf_token", "jwt", "api_key", "apikey"),
    *("apiKey", "x-api-key", "api.key", "OPENAI_KEY", "AWS_SECRET_ACCESS_KEY", "private_key", "privateKey"),
    *("SharedAccessKey", "AccountKey", "signing_key", "authorization", "Proxy-Authorization", "auth", "cookie"),
    *("Set-Cookie", "session_id", "sessionid", "credential", "credentials", "SENTRY_DSN", "connection_string"),
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_secret_name_is_known_in_every_spelling(name: str) -> None:
    assert redact(f"{{'{name}': 'swordfish'}}") == f"{{'{name}': '[secret]'}}"
    assert secret_values({name: "swordfish"}) == {"swordfish"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Config(api_key='abc123', n=3)", "Config(api_key='[secret]', n=3)"),
        ('{"password":"abc123","user":"bob"}', '{"password":"[secret]","user":"bob"}'),
        ("password='cut of", "password='[secret]"),
        ("auth=('bob', 'abc123'), n=3", "auth=[secret], n=3"),
        ("tokens: ['abc123', 'def'] n", "tokens: [secret] n"),
        ("Key (token)=(abc123) already exists", "Key (token)=[secret] already exists"),
        ("UID=sa;PWD=abc123;Server=db", "UID=sa;PWD=[secret];Server=db"),
        ("Command '['x', '--token', 'abc123', '-v']'", "Command '['x', '--token', '[secret]', '-v']'"),
        ("curl -H 'Authorization: Bearer abc123' x", "curl -H 'Authorization: [secret]' x"),
        ('Cookie: a="b"; session=xyz\nHost: x', "Cookie: [secret]\nHost: x"),
        ("sent Bearer abc123def", "sent Bearer [secret]"),
        ("CREATE USER bob IDENTIFIED BY 'abc123'", "CREATE USER bob IDENTIFIED BY '[secret]'"),
        ("[SQL: INSERT ?]\n[parameters: ('bob', 'abc123')]", "[SQL: INSERT ?]\n[parameters: [secret]]"),
        (
            "password\n  Too short [type=x, input_value='abc123', input_type=str]",
            "password\n  Too short [type=x, input_value=[secret], input_type=str]",
        ),
        ("https://x.example/?key=abc123&q=b#f", "https://x.example/?key=[secret]&q=b#f"),
        ("https://x.example/?X-Amz-Signature=abc123&q=b", "https://x.example/?X-Amz-Signature=[secret]&q=b"),
        ("https://x.example/f?sv=1&sig=abc%2F123%3D", "https://x.example/f?sv=1&sig=[secret]"),
        ("https://x.example/#access_token=abc123&q=b", "https://x.example/#access_token=[secret]&q=b"),
        ("AccountName=a;AccountKey=ab+/c==;Suffix=net", "AccountName=a;AccountKey=[secret];Suffix=net"),
        ("https://hooks.slack.com/" + "services/T0/B0/abc123", "https://hooks.slack.com/[secret]"),
        ("redis://:abc123@10.0.0.5:6379/0", "redis://[secret]@[address]/0"),
        ("git clone https://abc123@github.com/o/r", "git clone https://[secret]@github.com/o/r"),
    ],
)
def test_a_value_goes_and_what_stands_around_it_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/bob", "~"),
        ("/home/bob/app/main.py", "~/app/main.py"),
        ('File "/Users/bob/app.py", line 3', 'File "~/app.py", line 3'),
        ("/root/.ssh/id_rsa and /root", "~/.ssh/id_rsa and ~"),
        ("C:\\Users\\bob\\app.py", "~\\app.py"),
        ("'C:\\\\Users\\\\Bob Smith\\\\app.py'", "'~\\\\app.py'"),
        ("c:/users/bob/app.py", "~/app.py"),
        ("\\\\?\\C:\\Users\\bob\\x", "~\\x"),
        ("\\\\server\\Users\\bob\\x", "~\\x"),
        ("/mnt/c/Users/bob/x", "~/x"),
        ("file:///home/bob/x", "file://~/x"),
        ("file://localhost/home/bob/x", "file://~/x"),
        ("file:///C:/Users/bob/x", "file://~/x"),
        ("~bob/x and '~bob'", "~/x and '~'"),
        ("/homes/bob /rootfs/x /home/", "/homes/bob /rootfs/x /home/"),
    ],
)
def test_a_home_folder_becomes_a_tilde_and_the_path_below_it_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bob.smith+x@mail.example.co.uk, x", "[e-mail], x"),
        ("?to=bob%40example.com&x", "?to=[e-mail]&x"),
        ("user bob@localhost", "user bob@localhost"),
        ("connect to 10.0.0.5:5432 failed.", "connect to [address] failed."),
        ("('192.168.1.7', 80), 10.1.0.0/16", "('[address]', 80), [address]"),
        ("10.0.0.1-10.0.0.9 and 10.0.0.1.", "[address]-[address] and [address]."),
        ("1.2.3.4.5, 256.1.1.1, 1.2.3", "1.2.3.4.5, 256.1.1.1, 1.2.3"),
        ("2001:db8::1 and [2001:db8::1]:8080", "[address] and [address]"),
        ("fe80::1%eth0, ::ffff:10.0.0.1, 1:2:3:4:5:6:7:8", "[address], [address], [address]"),
        ("00:1A:2b:3c:4d:5e and 00-1A-2b-3c-4d-5e", "[address] and [address]"),
        ("db.prod.internal:5432 and redis.default.svc.cluster.local.", "[address] and [address]."),
        ("http://printer.local/x", "http://[address]/x"),
    ],
)
def test_addresses_go(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_known_secrets_go_in_every_form() -> None:
    secret = "pä/ss wörd'\"+1&\\x"
    raw = secret.encode()
    forms = [
        *(secret, repr(secret), repr(raw), json.dumps(secret), json.dumps(secret, ensure_ascii=False)),
        *(quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="").lower()),
        *(
            encode(before + raw + b"!").decode()
            for encode in (b64encode, urlsafe_b64encode)
            for before in (b"", b"a", b"ab")
        ),
    ]

    for form in forms:
        shown = redact(f"<{form}>", secrets=[secret])
        assert "[secret]" in shown
        assert len(shown) <= len("<abc[secret]abc==>"), form


def test_a_known_secret_goes_though_it_is_a_word_of_ours() -> None:
    assert redact("my secret: [address]", secrets=["secret", "address"]) == "my [secret]: [address]"


def test_a_text_that_never_settles_is_not_shown() -> None:
    assert redact("x" * 20 + "[", secrets=["x["]) == "[removed]"


def test_values_are_secret_by_their_name_however_deep_they_are() -> None:
    payload = {
        "user": "bob-the-builder",
        "db": {"Password": "swordfish", "hosts": [{"api-key": "abcdef"}]},
        "credentials": {"login": ["service-account"]},
        "session_token": b"from bytes",
        "account_key": 12345678,
        "url": "postgresql://bob:p%40ssword@db.example.com/app",
    }

    assert secret_values(payload) == {
        *("swordfish", "abcdef", "service-account", "from bytes", "12345678", "p%40ssword", "p@ssword"),
    }


def test_values_that_would_blank_out_ordinary_text_are_left_out() -> None:
    harmless = {"password": "short", "token": "disabled", "secret": True, "auth": None, "api_key": 12345, "dsn": ""}
    counted = {"max_tokens": 128000, "PWD": "/srv/app", "OLDPWD": "/srv/app", "SSH_AUTH_SOCK": "/tmp/agent.1"}

    assert secret_values(harmless | counted) == frozenset()


def test_a_payload_that_holds_itself_is_read_once() -> None:
    payload: dict[str, object] = {"token": "swordfish"}
    payload["self"] = [payload]

    assert secret_values(payload) == {"swordfish"}


# Written here once more, so that one which gets lost in the table is missed.
BEGINNINGS = re.findall(
    r"\S+",
    """
    ghp_ gho_ ghu_ ghs_ ghr_ sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ whsec_ npm_ hf_ sk- gsk_ r8_ xai- pplx- tvly-
    shpat_ shpss_ shpca_ shppa_ dop_v1_ doo_v1_ glsa_ lin_api_ ntn_ NRAK- figd_ sbp_ nfp_ rubygems_ dckr_pat_ pscale_
    LTAI EAAA ATATT ATCTT AGE-SECRET-KEY- CLOJARS_ github_pat_ glpat- glptt- gldt- glrt- glcbt- glagent- gloas- xoxb-
    xoxp- xoxa- xoxr- xoxs- xoxe- xoxe. xoxc- xoxd- xapp- sk-proj- sk-svcacct- sk-admin- sk-ant- sk-or- sk-lf- AIza
    ya29. GOCSPX- pypi-A hvs. hvb. sk-live- sk-test- dp.pt. sntrys_ sq0atp- sq0csp- sb_secret_ PMAK- pat-na1-
    """,
)
BEGINNING_WITH_A_PART_OF_ITS_OWN = r"SG\.[\w-]{16,}+\."


def test_the_beginnings_of_tokens_that_are_tested_are_all_that_are_known() -> None:
    known = {*TOKEN_BEGINNINGS, *LONG_TOKEN_BEGINNINGS} - {BEGINNING_WITH_A_PART_OF_ITS_OWN}

    assert {beginning.replace("\\", "") for beginning in known} == set(BEGINNINGS)


@pytest.mark.parametrize("beginning", [*BEGINNINGS, "SG." + "plainlettersonly" + "."])
def test_a_token_goes_for_its_beginning_alone(beginning: str) -> None:
    """Behind it are letters that no other rule would find odd."""
    plain = "abandonedlighthousekeeper"

    assert redact(f"no {plain} here") == f"no {plain} here"
    assert redact(f"got {beginning}{plain} back") == "got [secret] back"


@pytest.mark.parametrize("secret", ["~~~???>>>~~~", "aa?bb>cc~dd??ee>>", "\xff\xfe\xfd\xfb?~"])
def test_a_known_secret_goes_in_url_safe_base64(secret: str) -> None:
    """Secrets whose base64 has + or /, which the url-safe form writes as - and _."""
    raw = secret.encode()
    plain, safe = (encode(raw).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode))
    assert plain != safe

    assert safe not in redact(f"from {safe} to", secrets=[secret])
    assert "[secret]" in redact(f"from {safe} to", secrets=[secret])
