"""How hard Hypothesis looks: HYPOTHESIS_PROFILE is `default` or `nightly`."""

import os

from hypothesis import settings

# In CI a run must not fail by the luck of the draw; elsewhere new examples are welcome.
in_ci = os.environ.get("CI") == "true"

settings.register_profile("default", max_examples=50, stateful_step_count=30, deadline=None, derandomize=in_ci)
settings.register_profile("nightly", max_examples=2000, stateful_step_count=50, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
