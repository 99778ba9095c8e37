"""The version, in the one place that the build, `qo.__version__` and `qo --version` read."""

__version__ = "0.1.0"
