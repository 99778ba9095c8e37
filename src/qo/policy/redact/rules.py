r"""The table of what `redact` takes out of a text: `RULES`, in this order.

Two kinds of evidence count here: a name beside a value (`password=…`), and a shape (`ghp_…`, an address,
32 random characters).

Where the evidence is weak, these are the choices:

- A value beside a secret name goes, however harmless it looks, but for `PLAIN_WORDS`, numbers of up to five
  digits and values of one or two characters: "token: expired" and "max_tokens=4096" stay.
- Random text of 32 characters and more goes. Words, numbers, dates, UUIDs and ULIDs (a job's id) stay, and so does
  a hash that says what it is ("commit 3f2a…", "sha256:…"). A bare hash goes: many keys look just like one.
- Four numbers with dots are an address, unless "version", "v" or a comparison stands before them (foo==1.2.3.4).
- `localhost` and `::1` stay; so do host names of the public internet.
- A home folder becomes `~`, and the path below it stays.

All patterns take linear time: each begins where a word begins, or at a fixed text, and what it repeats is either
bounded or never given back (`++`, `(?>…)`). `++` stands after single characters only, because Python before 3.11.5
gets it wrong after groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

SECRET, ADDRESS, EMAIL = "[secret]", "[address]", "[e-mail]"

FEWEST_RANDOM_CHARACTERS = 23


# --- Names that say that a value is secret ----------------------------------------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _any_of(words: Iterable[str], *, ignore_case: bool = True) -> str:
    """One of these words (or patterns that begin with a letter). At most places only one letter is looked at."""
    endings: dict[str, list[str]] = {}
    for word in words:
        endings.setdefault(word[0], []).append(word[1:])
    first, flag = ("[{}{}]", "i") if ignore_case else ("{}", "")
    return "(?:" + "|".join(f"{first.format(a, a.upper())}(?{flag}:{'|'.join(b)})" for a, b in endings.items()) + ")"


# Found as a part of any name, since hardly a word ends in them: PGPASSWORD, authtoken.
SECRET_WORDS = _words(r"""
    password passwd passphrase passcode credential creds cookie csrf xsrf authorization session[\x20_-]?id
    connection[\x20_-]?string x-amz-signature x-goog-signature
    secret(?!(?<=\[secret)\])
    token(?!s["'\s:=]{1,6}[0-9]{1,12}(?!\w))
""")  # neither our own "[secret]" nor a count of tokens ("tokens: 128000") is such a name
SECRET_KEYS = _words("""
    api access account admin app application auth client consumer deploy encryption functions license master private
    secret service session shared signing ssh storage subscription webhook
""")
# Found only as a whole part of a name: db_pass, userPwd; not compass, author.
SECRET_PARTS = _words("pass pwd psk auth dsn otp totp jwt bearer hmac")
# The end of a name that speaks about a secret and does not hold it.
HARMLESS_ENDINGS = _words(r"""
    age algorithm class count dir endpoint error expires expires_at expires_in expiry field file format index kind
    length limit manager name path policy prefix provider required scope scopes size sock socket store ttl type uri url
    usage used version \.py \.js \.ts \.json \.toml \.txt
""")
OPEN_KEYS = _words("PUBLIC PRIMARY FOREIGN CACHE SORT PARTITION")  # all others in capitals count: OPENAI_KEY
WORKING_FOLDERS = ("PWD", "OLDPWD")

PART_BEGAN = r"(?-i:(?<![A-Za-z].)|(?<=[a-z][A-Z])|(?<=[A-Z])(?=[a-z]))"  # to be asked behind its first letter
PART_ENDS = r"s?(?!(?<=[a-z])[a-z]|(?<=[A-Z])[A-Z])"
NAME = (
    _any_of(
        (
            *SECRET_WORDS,
            *(f"{kind}[ _.-]?key" for kind in SECRET_KEYS),
            *(part[0] + PART_BEGAN + part[1:] for part in SECRET_PARTS),
            "k(?-i:(?<=[A-Z0-9]_K)" + "".join(f"(?<!{kind}_K)" for kind in OPEN_KEYS) + "EY)",
        )
    )
    + PART_ENDS
    + r"[\w.-]{0,64}+"
    + "".join(f"(?<!{ending})" for ending in HARMLESS_ENDINGS).join(("(?i:", ")"))
)
# One of these is in every name that counts.
NAME_HINTS = _words(
    "auth bearer connection cookie cred dsn hmac jwt key otp pass psk pwd secret session signature srf token"
)


# --- Values beside a name ---------------------------------------------------------------------------------------------

# What stands after "token:" in a sentence, or says that there is no value.
PLAIN_WORDS = _words("""
    a an and are at bad be been before blank bool but bytes can cannot character check contains could default denied
    detected dict did disabled does duplicate empty enabled error exceeded expected expecting expired failed failure
    false field float for forbidden found from got had has have header hidden how if in incorrect int invalid is it
    its length line list malformed masked mismatch missing must name nil no none not null of off ok on one only
    optional or please redacted rejected required requires revoked see set should str string that the there these this
    to too true try type undefined unauthorized unexpected unknown unset used using valid value was we were what when
    where which while will with without wrong yes you your
""")
PLAIN = rf"(?:{_any_of(sorted(PLAIN_WORDS, reverse=True))}|[0-9]{{1,5}}|\.{{3}}|\[\]|\(\)|\{{\}}|<[A-Za-z_]{{0,20}}>)"
PLAIN_IN_SENTENCE = PLAIN + r"(?=[\s\"'`,;&)\]}\\]|[.:!?](?:\s|\Z)|\Z)"
SEPARATOR = r"[\\\"'`\])]{0,5}[ \t]{0,8}(?:=>|:=|={1,3}|:(?!:|//)|>(?=\S)|%3[AaDd])[ \t]{0,8}"
# A quote that opens the value, also in b'…', SecretStr('…') and, in a text that is quoted itself, \"…\".
OPENING = r"(?:[\w.]{1,40}\()?[bru]?(?P<escape>\\{1,3})?(?P<quote>[\"'`])"
# Up to the closing quote or, where the text was cut, the end of the line.
QUOTED = (
    r"(?(escape)(?>(?:(?!(?P=quote))[^\\\n]|(?!(?P=escape)(?P=quote))\\++(?P=quote)?)+)"
    r"|(?>(?:(?!(?P=quote))[^\\\n]|\\.)+))"
)
BRACKETED = r"\[[^\]\n]*+\]?|\([^)\n]*+\)?|\{[^}\n]*+\}?|<[^>\n]*+>?"
# A comma and the like end a value only where a space or another name follows: a password may hold one.
BARE = (
    r"(?:(?i:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,4})?"
    r"[^\s\"'`<>,;&)\]}]{3,}+(?>(?:[,;&)\]}]++[^\s\"'`<>,;&=:)\]}]++(?![=:\"']))*)"
)
VALUE = (
    rf"(?(quote)(?!(?:{PLAIN}|[^\\]{{1,2}})(?(escape)(?P=escape))(?P=quote)){QUOTED}"
    rf"|(?!{PLAIN_IN_SENTENCE})(?:{BRACKETED}|{BARE}))"
)


# --- Shapes -----------------------------------------------------------------------------------------------------------

# Beginnings of tokens that go on with letters and digits, and of those that may hold - and _ as well.
TOKEN_BEGINNINGS = _words("""
    ghp_ gho_ ghu_ ghs_ ghr_ sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ whsec_ npm_ hf_ sk- gsk_ r8_ xai- pplx- tvly-
    shpat_ shpss_ shpca_ shppa_ dop_v1_ doo_v1_ glsa_ lin_api_ ntn_ NRAK- figd_ sbp_ nfp_ rubygems_ dckr_pat_ pscale_
    LTAI EAAA ATATT ATCTT AGE-SECRET-KEY- CLOJARS_
""")
LONG_TOKEN_BEGINNINGS = _words(r"""
    github_pat_ glpat- glptt- gldt- glrt- glcbt- glagent- gloas- xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxe\. xoxc- xoxd-
    xapp- sk-proj- sk-svcacct- sk-admin- sk-ant- sk-or- sk-lf- AIza ya29\. GOCSPX- pypi-A SG\.[\w-]{16,}+\. hvs\. hvb\.
    sk-live- sk-test- dp\.pt\. sntrys_ sq0atp- sq0csp- sb_secret_ PMAK- pat-na1-
""")
IPV4 = r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
PORT = r"(?:/[0-9]{1,3})?(?::[0-9]{1,5})?(?![0-9])"
INTERNAL_DOMAINS = _words("internal local localdomain lan intranet corp home.arpa svc consul")
HASH_NAMES = _words("commit digest checksum etag hash md5 revision sha-?[0-9]{0,3}")
FOLDER = r"[^\s\\/\"'`:;,<>|*?()\[\]{}]++"
HOME = (
    r"(?:(?P<file>[Ff]ile:(?://)?)[\w.-]{0,64}/?|(?<![\w.~%)\]-]))(?:"
    rf"(?:/(?:export|usr|var|mnt|nfs|data|srv|private|mnt/[a-z]|[a-z]))?/(?:home|Users)/{FOLDER}"
    r"|(?:/var)?/root(?![\w.-])"
    r"|(?:\\{2,4}[?.]\\{1,2})?(?:[A-Za-z]:[\\/]{1,2}|\\{2,4}[\w.-]{1,64}\\{1,2}(?:[A-Za-z]\$\\{1,2})?)"
    rf"(?i:users|documents and settings)[\\/]{{1,2}}(?:(?:{FOLDER} ){{1,3}}{FOLDER}(?=[\\/])|{FOLDER})"
    r"|~[A-Za-z_][\w.-]*+(?=[/\\\"'`:,)]|\s*\Z))"
)

KNOWN_ID = re.compile(
    r"(?<![A-Za-z0-9])(?:[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-7][0-9A-HJKMNP-TV-Z]{25}"
    r"|(?:(?<=/commit/)|(?<=/blob/)|(?<=/tree/))[0-9a-f]{40})(?![A-Za-z0-9])"
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
LONG_PIECE = re.compile(r"[A-Za-z0-9]{4,}")
ORDINARY_NAME = re.compile(r"(?>(?:[A-Z]?[a-z]++|[A-Z]++|[0-9]++)?(?:[_-]++(?:[A-Z]?[a-z]++|[A-Z]++|[0-9]++)?)*)")


def _is_random(text: str) -> bool:
    """Whether letters and digits change so often that this is no name.

    Words are five letters long on average; in random text they break off after two or three. CamelCase
    is given more room because every word has a capital, and small letters more than capitals because
    file names have numbers in them.
    """
    random_characters = 0
    for piece in LONG_PIECE.findall(KNOWN_ID.sub("-", text)):
        words = len(WORD.findall(piece))
        expected_length = 8 if piece.isupper() else 6 if piece.islower() else 4
        if words > 1 and words * expected_length >= len(piece):
            random_characters += len(piece)
    return random_characters >= FEWEST_RANDOM_CHARACTERS


def _without_random_text(found: re.Match[str]) -> str:
    if found["hash"] or not _is_random(found[0]):
        return found[0]
    # "/" is a character of base64 as well as of paths. Folders with ordinary names before and after stay.
    parts = found[0].split("/")
    strange = [place for place, part in enumerate(parts) if not ORDINARY_NAME.fullmatch(part)]
    return "/".join([*parts[: strange[0]], SECRET, *parts[strange[-1] + 1 :]])


def _without_ipv6(found: re.Match[str]) -> str:
    groups = found["groups"].split(":")
    complete = found["groups"].count("::") == 1 or len(groups) == (7 if "." in groups[-1] else 8)
    return ADDRESS if complete and any(character.isdigit() for character in found["groups"]) else found[0]


# --- The rules --------------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """What is taken out. Without one of the hints, in small letters, there is none of it in a text."""

    takes_out: str
    hints: tuple[str, ...]
    pattern: str
    shown: str | Callable[[re.Match[str]], str] = SECRET


BEHIND_KEPT = rf"\g<kept>{SECRET}"
WORD_BEGINS, WORD_ENDS = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"

RULES = (
    Rule(
        "private keys, also without their end",
        ("-----begin ",),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?s:.*?)(?:-----END [A-Z ]{0,60}-----|\Z)",
    ),
    Rule(
        "the values of a failed SQL statement", ("[parameters: ",), r"\[parameters: [^\n]*+", f"[parameters: {SECRET}]"
    ),
    Rule(
        "the input that pydantic refused, below a secret name",
        ("input_value=",),
        rf"(?P<kept>{NAME}\n  [^\n]*?input_value=)(?:(?!, input_type=)[^\n])+",
        BEHIND_KEPT,
    ),
    Rule(
        "header lines",
        ("authorization", "cookie"),
        rf"(?P<kept>{_any_of(('authorization', 'cookie'))}[ \t]{{0,8}}:[ \t]{{0,8}})(?!{PLAIN_IN_SENTENCE}|[\"'\s])"
        r"(?>(?:[^\"'\\\n]++|[\"'](?![\s,)\]}]|\Z)|\\(?![rn]))+)",
        BEHIND_KEPT,
    ),
    Rule(
        "user and password in URLs",
        ("://",),
        r"(?<=://)(?:[^\s\"'`<>@:/?#]*+:(?![0-9]{1,5}[/?#\s\"'])(?:(?:[^\s\"'`<>@:]++|:(?!//))*@)+"
        r"|(?:[^\s\"'`<>@/?#]*+@)+)",
        f"{SECRET}@",
    ),
    Rule("values beside a secret name", NAME_HINTS, rf"(?P<kept>{NAME}{SEPARATOR}(?:{OPENING})?){VALUE}", BEHIND_KEPT),
    Rule(
        "values of command-line options",
        NAME_HINTS,
        rf"(?P<kept>(?<![\w-])--?(?=[\w-]{{0,40}}?{NAME})[\w-]{{2,80}}+[\"']?,?[ \t]{{1,4}}(?!-)(?:{OPENING})?){VALUE}",
        BEHIND_KEPT,
    ),
    Rule(
        "pairs of a name and a value",
        NAME_HINTS,
        rf"(?P<kept>[(\[][bu]?[\"'][\w-]{{0,40}}?{NAME}[\"'],[ ]?(?:{OPENING})){VALUE}",
        BEHIND_KEPT,
    ),
    Rule(
        "quoted passwords in a sentence",
        ("pass", "identified by"),
        rf"(?P<kept>{_any_of(('password', 'passphrase', 'identified by'))} (?:is |was )?(?:{OPENING})){VALUE}",
        BEHIND_KEPT,
    ),
    Rule(
        "signatures and keys in URLs",
        ("key=", "sig=", "signature=", "code="),
        rf"(?P<kept>[?&;](?i:key|sig|signature|code)=)(?!{PLAIN_IN_SENTENCE})[^\s&\"'<>#]{{3,}}+",
        BEHIND_KEPT,
    ),
    Rule(
        "bearer and basic tokens",
        ("bearer", "basic"),
        rf"(?P<kept>{WORD_BEGINS}[Bb](?i:earer|asic)(?:[ \t]|%20){{1,4}})"
        r"(?!(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15})(?![\w+/=~-]|\.\w))[\w+/=.~*-]{6,}+",
        BEHIND_KEPT,
    ),
    Rule("web tokens (JWT)", ("eyj",), r"(?<![\w-])eyJ[\w-]{10,}+(?>(?:\.[\w-]*+){0,4})"),
    Rule(
        "tokens known by their beginning",  # and of 16 characters at least, so that names stay
        (),
        rf"{WORD_BEGINS}(?:{_any_of(LONG_TOKEN_BEGINNINGS, ignore_case=False)}[\w.*-]{{10,}}+"
        rf"|{_any_of(TOKEN_BEGINNINGS, ignore_case=False)}[A-Za-z0-9*]{{16,}}+[=\w-]*+)",
    ),
    Rule(
        "AWS key ids",
        ("akia", "asia", "abia", "acca", "aroa", "aida"),
        rf"{WORD_BEGINS}A(?:KIA|SIA|BIA|CCA|ROA|IDA)[A-Z0-9]{{16}}{WORD_ENDS}",
    ),
    Rule(
        "AWS secret keys",
        (),
        r"(?<![\w/+.-])(?=[a-z0-9/+]*+[A-Z])(?=[A-Za-z/+]*+[0-9])(?!(?:[A-Za-z0-9+]*+/){4})[A-Za-z0-9/+]{40}(?![\w/+.=-])",
    ),
    Rule("Twilio keys", ("sk", "ac"), rf"{WORD_BEGINS}(?:SK|AC)[0-9a-f]{{32}}{WORD_ENDS}"),
    Rule("Telegram bot tokens", (":",), rf"{WORD_BEGINS}(?:bot)?[0-9]{{8,10}}:[\w-]{{30,}}+"),
    Rule("Discord bot tokens", (".",), r"(?<![\w.-])[MNO][\w-]{22,27}+\.[\w-]{6}\.[\w-]{27,}+"),
    Rule("Slack webhooks", ("hooks.slack.com/",), r"(?<=hooks\.slack\.com/)[\w/-]++"),
    Rule("SSH keys", ("aaaa",), r"(?<![\w+/])AAAA[A-Za-z0-9+/]{20,}+={0,3}"),
    Rule(
        "random text",
        (),
        rf"(?<![A-Za-z0-9+/_-])(?:(?P<hash>{_any_of(HASH_NAMES)}[\"']?[\s:=@(\"']{{1,3}}[0-9a-f]{{32,128}}+)"
        r"|[A-Za-z0-9+/_-]{32,}+={0,2})",
        _without_random_text,
    ),
    Rule("home folders", ("/home/", "/root", "users", "settings", "~"), HOME, r"\g<file>~"),
    Rule(
        "e-mail addresses",
        ("@", "%40"),
        r"(?<![\w.+-])[\w.+-]++(?:@|%40)(?!v?[0-9]+\.[0-9])[\w-]++(?>(?:\.[\w-]++)+)(?<=[^\W\d_]{2})",
        EMAIL,
    ),
    Rule(
        "MAC addresses",
        (":", "-"),
        r"(?<![\w:-])[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5})(?![\w:-])",
        ADDRESS,
    ),
    Rule(
        # Times (12:30:45), slices (1::2) and `::1` have the same shape; they have neither a long group nor four.
        "IPv6 addresses",
        (":",),
        r"(?<![\w:.])(?=\[?[0-9A-Fa-f:]{0,40}?(?:[0-9A-Fa-f]{3}|(?::[0-9A-Fa-f]{1,4}){3}))"
        rf"\[?(?P<groups>(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}(?:{IPV4}|[0-9A-Fa-f]{{0,4}}))"
        rf"(?:%[\w-]{{1,20}})?\]?{PORT}(?![\w:])",
        _without_ipv6,
    ),
    Rule(
        "IPv4 addresses",
        (".",),
        rf"(?<![\w.])(?<![=<>~!]=)(?<!(?i:version) ){IPV4}(?!\.?[0-9]|[A-Za-z_]){PORT}",
        ADDRESS,
    ),
    Rule(
        "hosts of internal networks",
        tuple(f".{domain}" for domain in INTERNAL_DOMAINS),
        r"(?<![\w.-])(?!(?:self|cls|threading)\.)[\w-]++(?>(?:\.[\w-]++)+)(?i:"
        + "|".join(rf"(?<=\.{re.escape(domain)})" for domain in INTERNAL_DOMAINS)
        + rf")(?!\(){PORT}",
        ADDRESS,
    ),
)
