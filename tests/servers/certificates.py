"""Certificates that nobody has signed but themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def make_certificate(certificate: Path, key: Path, *, names: Sequence[str]) -> None:
    """`names` as OpenSSL writes them, such as DNS:example.com or IP:127.0.0.1."""
    kind = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    about = f"-days 2 -subj /CN=qo.test -addext subjectAltName={','.join(names)}"
    command = f"openssl req -x509 {kind} {about} -out {certificate} -keyout {key}"
    subprocess.run(command.split(), check=True, capture_output=True)
