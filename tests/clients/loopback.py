"""A network namespace in which there is nothing but this machine's own loopback."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.clients.processes import APART, end, isolated, unshare, works

INSIDE = "KROUTER_CLIENTS_INSIDE"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
REFUSED = (
    "The clients run in a namespace without a way out, and this machine makes none: "
    f"`unshare --user --map-root-user --net {' '.join(APART)} true` must work. It needs Linux, "
    "util-linux and user namespaces (kernel.apparmor_restrict_unprivileged_userns=0 where AppArmor "
    "forbids them)."
)


def is_inside() -> bool:
    return INSIDE in os.environ


def run_inside(arguments: Sequence[str]) -> int:
    """Runs this program again, inside; its exit code. What it has started ends with it, and it ends
    with this one: the group hears of SIGTERM, which `unshare` itself takes no notice of."""
    command = unshare("--net", *APART)
    if not works([*command, *isolated([])]):
        sys.exit(REFUSED)
    again = [*command, sys.executable, "-m", "tests.clients", *arguments]
    environment = {**os.environ, INSIDE: "1"}
    process = subprocess.Popen(again, env=environment, process_group=0)
    try:
        return process.wait()
    finally:
        end(process, group=True)


def raise_loopback() -> None:
    """Brings up `lo`, and refuses to go on where there is another interface."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    names = {line.split(":")[0].strip() for line in lines}
    if names != {"lo"}:
        sys.exit(f"not a namespace of its own: it has {', '.join(sorted(names))}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        asked = struct.pack("16sh", b"lo", 0)
        flags = struct.unpack("16sh", fcntl.ioctl(opened, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(opened, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP))
