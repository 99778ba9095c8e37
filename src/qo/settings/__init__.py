"""Every setting of qo.

`sections` has the keys and their defaults, `purpose` what each is for, `loading` reads the file and the environment.
"""

from qo.settings.loading import FILE_NAME, find_settings_file, load_settings
from qo.settings.purpose import PURPOSES
from qo.settings.sections import (
    BUILT_IN_TIERS,
    TEN_YEARS_SECS,
    EstimateSettings,
    HistorySettings,
    NotifySettings,
    QueueSettings,
    RetrySettings,
    Settings,
    Tier,
)

__all__ = [
    "BUILT_IN_TIERS",
    "FILE_NAME",
    "PURPOSES",
    "TEN_YEARS_SECS",
    "EstimateSettings",
    "HistorySettings",
    "NotifySettings",
    "QueueSettings",
    "RetrySettings",
    "Settings",
    "Tier",
    "find_settings_file",
    "load_settings",
]
