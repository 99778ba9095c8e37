"""Where settings come from, what wins, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import SettingsError
from qo.job import PRIORITY_NAMES
from qo.policy import ordering
from qo.settings import Settings, find_settings_file, load_settings

Load = Callable[..., Settings]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of its own, with an empty `.qo.toml` so that none above it is found."""
    (tmp_path / ".qo.toml").touch()
    return tmp_path


@pytest.fixture
def load(directory: Path) -> Load:
    """Load settings from the text of a file, an environment and code."""

    def load(file: str = "", environ: dict[str, str] | None = None, code: dict[str, Any] | None = None) -> Settings:
        (directory / ".qo.toml").write_text(file)
        return load_settings(code, directory=directory, environ=environ or {})

    return load


# Defaults


def test_without_any_source_the_defaults_hold(load: Load) -> None:
    assert load() == Settings()


def test_without_a_file_nothing_but_the_tiers_is_limited() -> None:
    assert Settings().concurrency.limits == {}


@pytest.mark.parametrize(
    ("tier", "numbers"),
    [
        ("bootstrapper", (2, 2, 5, 0, 2, 6, 480)),
        ("partner", (3, 3, 50, 2, 3, 9, 600)),
        ("cto_scale", (10, 5, 200, 5, 5, 15, 900)),
    ],
)
def test_the_built_in_tiers_have_the_numbers_of_the_specification(tier: str, numbers: tuple[int, ...]) -> None:
    found = Settings().tiers[tier]

    assert numbers == (
        found.per_user,
        found.per_project,
        found.jobs_per_day,
        found.boost,
        found.iterations,
        found.max_iterations,
        found.first_guess_secs,
    )


def test_changing_the_tiers_of_one_settings_leaves_the_defaults_alone(load: Load) -> None:
    load("[tiers.partner]\nper_user = 9")

    assert Settings().tiers["partner"].per_user == 3


# Finding the file


def test_the_nearest_file_upwards_is_found(tmp_path: Path) -> None:
    below = tmp_path / "project" / "package" / "module"
    below.mkdir(parents=True)
    (tmp_path / ".qo.toml").touch()
    nearest = tmp_path / "project" / ".qo.toml"
    nearest.touch()

    assert find_settings_file(below) == nearest


def test_a_directory_of_that_name_is_not_the_file(tmp_path: Path) -> None:
    (tmp_path / ".qo.toml").touch()
    below = tmp_path / "below"
    (below / ".qo.toml").mkdir(parents=True)

    assert find_settings_file(below) == tmp_path / ".qo.toml"


# The file


def test_the_example_of_the_specification_is_understood(load: Load) -> None:
    settings = load("""
        [store]
        url = "redis://localhost:6379/0"
        [concurrency]
        default_lease_duration_secs = 300
        [concurrency.limits]
        call_external_api = 10
        heavy_processing = 2
        "provider:ollama" = 4
        [tiers.partner]
        per_user = 3
        [queue]
        cap = 100
    """)

    limits = {"call_external_api": 10, "heavy_processing": 2, "provider:ollama": 4}
    assert settings.store.url == "redis://localhost:6379/0"
    assert settings.concurrency.limits == limits


def test_a_tier_table_changes_only_the_numbers_it_names(load: Load) -> None:
    partner = load("[tiers.partner]\nper_user = 4").tiers["partner"]

    assert (partner.per_user, partner.per_project, partner.jobs_per_day) == (4, 3, 50)


def test_a_tier_of_a_new_name_has_the_numbers_of_bootstrapper_where_it_names_none(load: Load) -> None:
    tiers = load("[tiers.studio]\nper_user = 7").tiers

    assert (tiers["studio"].per_user, tiers["studio"].jobs_per_day) == (7, tiers["bootstrapper"].jobs_per_day)
    assert set(tiers) == {"bootstrapper", "partner", "cto_scale", "studio"}


def test_an_empty_table_names_a_tier_and_changes_no_number(load: Load) -> None:
    settings = load("[tiers.studio]\n[tiers.partner]\n[queue]", code={"tiers": {"partner": {}}, "queue": {}})

    assert settings.tiers["studio"] == settings.tiers["bootstrapper"]
    assert settings.tiers["partner"] == Settings().tiers["partner"]


@pytest.mark.parametrize("name", [*PRIORITY_NAMES, *map(str, (0, 99))])
def test_the_default_priority_is_a_name_or_a_number(load: Load, name: str) -> None:
    priority = load(environ={"QO_QUEUE__DEFAULT_PRIORITY": name}).queue.default_priority

    assert ordering.parse_priority(priority) in {*PRIORITY_NAMES.values(), 0, 99}


# The environment and code


def test_the_environment_wins_over_the_file_and_code_over_both(load: Load) -> None:
    file = "[queue]\ncap = 1\nretention_jobs = 1\nmax_payload_bytes = 1"
    environ = {"QO_QUEUE__CAP": "2", "QO_QUEUE__RETENTION_JOBS": "2"}

    queue = load(file, environ, code={"queue": {"cap": 3}}).queue

    assert (queue.cap, queue.retention_jobs, queue.max_payload_bytes) == (3, 2, 1)


def test_qo_url_names_the_store(load: Load) -> None:
    environ = {"QO_URL": "memory://", "QO_STORE__URL": "sqlite:///other.db"}

    assert load('[store]\nurl = "sqlite:///file.db"', environ).store.url == "memory://"


def test_a_variable_reaches_into_nested_tables(load: Load) -> None:
    settings = load(
        environ={
            "QO_CONCURRENCY__DEFAULT_LEASE_DURATION_SECS": "60",
            "QO_TIERS__PARTNER__PER_USER": "4",
            "QO_CONCURRENCY__LIMITS__CALL_EXTERNAL_API": "10",
            "QO_CONCURRENCY__LIMITS__PROVIDER__OLLAMA": "5",
            "QO_CONFIRMATION__REMINDERS_AFTER_HOURS": "[1, 2.5]",
        }
    )

    assert settings.concurrency.default_lease_duration_secs == 60
    assert (settings.tiers["partner"].per_user, settings.tiers["partner"].boost) == (4, 2)
    assert settings.concurrency.limits == {"call_external_api": 10, "provider:ollama": 5}
    assert settings.confirmation.reminders_after_hours == (1, 2.5)


def test_empty_and_foreign_variables_are_no_settings(load: Load) -> None:
    environ = {"QO_URL": "", "QO_QUEUE__CAP": "", "QO_NONE": "", "QO_VALKEY_SERVER": "x", "PATH__X": "y"}

    assert load(environ=environ) == Settings()


# Refusals: one sentence with the source, the key, the value and what was expected

REFUSED = [
    ("[queue]\ncap = -1", "queue.cap is -1; expected a whole number from 0 to 1000000000."),
    ("[queue]\ncap = 1.5", "queue.cap is 1.5; expected a whole number from 0 to 1000000000."),
    ("[queue]\ncap = true", "queue.cap is True; expected a whole number from 0 to 1000000000."),
    ("[queue]\ncap = '100'", "queue.cap is '100'; expected a whole number from 0 to 1000000000."),
    ("[queue.cap]\nx = 1", "queue.cap is {'x': 1}; expected a whole number from 0 to 1000000000."),
    ("[queue]\ncap = {}", "queue.cap is {}; expected a whole number from 0 to 1000000000."),
    ("queue = 5", "queue is 5; expected a table."),
    ("[concurrency]\nlimits = 5", "concurrency.limits is 5; expected a table."),
    ("[tiers]\npartner = 5", "tiers.partner is 5; expected a table."),
    ("[queue]\ncap_applies_to = 'some'", 'queue.cap_applies_to is \'some\'; expected "tiered" or "all".'),
    (
        "[queue]\ndefault_priority = 100",
        "queue.default_priority is 100; "
        "expected a whole number from 0 to 99, or urgent, high, normal, low or background.",
    ),
    (
        "[concurrency.limits]\n'provider:ollama' = -4",
        "concurrency.limits.'provider:ollama' is -4; expected a whole number from 0 to 1000000000.",
    ),
    (
        "[concurrency.limits]\n'' = 4",
        "concurrency.limits.'' is no name; expected 1 to 200 characters, none of them a control character.",
    ),
    ("[tiers.gold]\nboost = 64", "tiers.gold.boost is 64; expected a whole number of places from 0 to 63."),
    (
        "[tiers.gold]\nbost = 6",
        "tiers.gold.bost is no setting; expected one of "
        "per_user, per_project, jobs_per_day, boost, iterations, iteration_batches, first_guess_secs.",
    ),
    ("[store]\npassword = 'secret'", "store.password is no setting; expected one of url, namespace, accept_eviction."),
    (
        "[concurrency]\ndefault_lease_duration_secs = 0",
        "concurrency.default_lease_duration_secs is 0; expected seconds above 0, at most ten years.",
    ),
    ("[queue]\naging_period_secs = nan", "queue.aging_period_secs is nan; expected seconds, 0 to ten years."),
    ("[queue]\nquota_jitter_secs = inf", "queue.quota_jitter_secs is inf; expected seconds, 0 to 3600."),
    (
        "[confirmation]\nreminders_after_hours = [12, 0]",
        "confirmation.reminders_after_hours is [12, 0]; expected a list of hours above 0, at most 87600.",
    ),
]


@pytest.mark.parametrize(("file", "sentence"), REFUSED)
def test_a_wrong_key_or_value_in_the_file_is_refused(load: Load, directory: Path, file: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load(file)

    assert str(refusal.value) == f"{directory / '.qo.toml'}: {sentence}"


def test_an_unknown_section_is_refused_with_the_known_ones(load: Load) -> None:
    with pytest.raises(SettingsError, match="que is no setting; expected one of store, concurrency, tiers,"):
        load("[que]\ncap = 1")


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("QO_QUEUE__CAP", "many", "queue.cap is 'many'; expected a whole number from 0 to 1000000000."),
        ("QO_QUEUE__CAP", "\udcff", r"queue.cap is '\udcff'; expected a whole number from 0 to 1000000000."),
        ("QO_CONCURRENCY__LIMITS", "3", "concurrency.limits is '3'; expected a table."),
        (
            "QO_CONFIRMATION__REMINDERS_AFTER_HOURS",
            "[1,",
            "confirmation.reminders_after_hours is '[1,'; expected a list of hours above 0, at most 87600.",
        ),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(load: Load, variable: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load(environ={variable: value})

    assert str(refusal.value) == f"{variable}: {sentence}"


def test_a_wrong_value_in_code_is_refused(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"^Settings given in code: tiers\.partner\.boost is -1; "):
        load(code={"tiers": {"partner": {"boost": -1}}})


def test_what_is_wrong_in_the_file_is_refused_also_where_the_environment_overrides_it(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"\.qo\.toml: queue\.cap is -1"):
        load("[queue]\ncap = -1", {"QO_QUEUE__CAP": "5"})


@pytest.mark.parametrize("content", [b"[queue\n", b"\xff"])
def test_a_file_that_is_not_toml_is_refused_by_its_name(directory: Path, content: bytes) -> None:
    file = directory / ".qo.toml"
    file.write_bytes(content)

    with pytest.raises(SettingsError) as refusal:
        load_settings(directory=directory, environ={})

    assert str(refusal.value).startswith(f"{file} is not valid TOML: ")


names = (
    st.text(max_size=5) | st.integers() | st.sampled_from(["store", "queue", "tiers", "concurrency", "limits", "cap"])
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2))


@given(code=st.dictionaries(names, anything, max_size=3))
def test_whatever_code_gives_is_either_settings_or_a_settings_error(
    code: dict[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        settings = load_settings(code, directory=tmp_path_factory.getbasetemp(), environ={})
    except SettingsError:
        return
    assert settings.queue.cap >= 0


@pytest.mark.parametrize("field", ["webhook_url", "webhook_secret", "smtp_url"])
def test_a_refused_secret_is_not_shown(field: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings({"notify": {field: 123456789}}, environ={})

    assert f"notify.{field} is not allowed; expected text that is not empty" in str(refusal.value)
    assert "123456789" not in str(refusal.value)


def test_a_payload_limit_above_what_stores_take_is_refused() -> None:
    with pytest.raises(SettingsError, match="from 1 to 1048576"):
        load_settings({"queue": {"max_payload_bytes": 2_000_000}}, environ={})


def test_a_file_named_in_the_settings_lies_beside_them(directory: Path) -> None:
    (directory / ".qo.toml").write_text('[store]\nurl = "sqlite:///data/qo.db"')
    below = directory / "deep" / "down"
    below.mkdir(parents=True)

    assert load_settings(directory=below, environ={}).store.url == f"sqlite:///{directory}/data/qo.db"
    assert load_settings(directory=below, environ={"QO_URL": "sqlite:///here.db"}).store.url == "sqlite:///here.db"


def test_an_absolute_file_and_another_store_stay_as_they_are(directory: Path) -> None:
    for url in ("sqlite:////var/qo.db", "redis://localhost:6379/0", "memory://"):
        (directory / ".qo.toml").write_text(f'[store]\nurl = "{url}"')
        assert load_settings(directory=directory, environ={}).store.url == url


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("QO_STORE__URI", "QO_STORE__URL (store.url)"),
        ("QO_STORE_URL", "QO_STORE__URL (store.url)"),
        ("QO_URI", "QO_URL (store.url)"),
        ("QO_CAP", "QO_QUEUE__CAP (queue.cap)"),
        ("QO_QUEUE_CAP", "QO_QUEUE__CAP (queue.cap)"),
        ("QO_QEUE__CAP", "QO_QUEUE__CAP (queue.cap)"),
        ("QO_QUEUE__CAP__X", "QO_QUEUE__CAP (queue.cap)"),
        ("QO_TIERS__GOLD__BOST", "QO_TIERS__GOLD__BOOST (tiers.gold.boost)"),
        ("QO_CONCURRENCY__LIMIT__GPU", "QO_CONCURRENCY__LIMITS__GPU (concurrency.limits.gpu)"),
        ("QO_", "QO_URL (store.url)"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(load: Load, variable: str, nearest: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environ={variable: "5"})

    assert str(refused.value) == f"{variable} is no setting; the nearest is {nearest}. Name it so, or unset it."


@pytest.mark.parametrize("namespace", ["", "n" * 201, "a\nb", 5])
def test_a_namespace_is_a_name(load: Load, namespace: int | str) -> None:
    with pytest.raises(SettingsError, match=r"store\.namespace is .*; expected 1 to 200 characters, none of"):
        load(code={"store": {"namespace": namespace}})
