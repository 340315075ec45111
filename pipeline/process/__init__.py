"""The process that forks the others, and how it is asked to: what is imported once need not be imported by each.

It runs nothing but this, so it has no threads and no connections, which would not survive a fork. Its standard input
is its line to the supervisor, and each process that it has forked has another, for what that one needs in turn. A
request is a name, and with it the socket that becomes the new process's standard input. What it answers: `forked PID`
to each request, `ended PID STATUS` when a process has that was asked for there; to the supervisor also an empty line,
to say that it lives. It ends with the supervisor's line.
"""

from __future__ import annotations
