"""`make audit` passes only where the advisories have been had and name nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")
FOUND = "Found 2 known vulnerabilities in 1 package\nName Version ID\nx 1.0 PYSEC-1"
UNREACHABLE = "requests.exceptions.ConnectionError: Failed to resolve 'pypi.org'"
SKIPPED = "ERROR:pip_audit._cli:x: Dependency not found on PyPI and could not be audited: x (1.0)"


def audit(venv: Path, says: str, code: int) -> tuple[int, str, str]:
    """The target with a pip-audit that says so; and how that was called."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    tool = venv / "bin" / "pip-audit"
    tool.write_text(f'#!/bin/sh\necho "$@" > {venv}/asked\ncat <<END\n{says}\nEND\nexit {code}\n')
    tool.chmod(0o755)
    for stamp in ("dev.stamp", "run.stamp"):
        (venv / stamp).touch()
    assert MAKE
    done = subprocess.run(
        [MAKE, "-C", str(ROOT), "audit", f"VENV={venv}"], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr, (venv / "asked").read_text()


@pytest.mark.skipif(MAKE is None, reason="make is what is tested")
@pytest.mark.parametrize(
    ("says", "code", "passes", "audited"),
    [
        ("No known vulnerabilities found", 0, True, True),
        (FOUND, 1, False, True),
        (UNREACHABLE, 1, False, False),
        (SKIPPED, 1, False, False),
        ("", 1, False, False),
    ],
)
def test_an_audit_that_was_none_fails_and_says_so(
    tmp_path: Path, says: str, code: int, passes: bool, audited: bool
) -> None:
    returned, told, asked = audit(tmp_path / "venv", says, code)
    assert (returned == 0) is passes
    assert says in told
    assert ("NOT AUDITED" in told) is not audited
    assert {"--strict", "--require-hashes", "requirements.lock"} <= set(asked.split())


def test_the_lock_that_is_audited_has_a_hash_for_everything() -> None:
    lines = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    assert len(lines) > 20
    assert all("==" in line and "--hash=sha256:" in line for line in lines if line.strip())
