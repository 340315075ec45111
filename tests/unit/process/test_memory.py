"""Memory that requests took is given back. Measured in separate processes, side by side."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BODIES = """
import sys
from pipeline.process import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1])

if "returned" in sys.argv:
    memory.return_freed()
first = bytearray(1_000_000)
del first  # from now on glibc would put pieces of that size between others
before, kept = resident(), []
for _ in range(3):
    bodies = [bytearray() for _ in range(60)]
    for size in range(8):
        for body in bodies:
            body += bytes(65_536)
            kept.append(bytes(1_000 + size))
    most = resident()
    del bodies, body
print(most - before, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other C library keeps it")
def test_memory_of_bodies_is_given_back() -> None:
    def pages(*arguments: str) -> list[int]:
        said = subprocess.run([sys.executable, "-c", BODIES, *arguments], check=True, capture_output=True, text=True)
        return [int(each) for each in said.stdout.split()]

    _, usual = pages()
    most, kept = pages("returned")
    assert kept < most / 4
    assert kept < usual / 2
