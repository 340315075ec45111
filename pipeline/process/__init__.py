"""Child processes, and the fork server: it imports all modules once and forks the other processes, which share them.

The fork server does nothing else: it has no threads and no connections, which would not survive a fork. Its standard
input is a socket to the supervisor, and each forked process has its own socket to it, to request processes in turn. A
request is a name, sent with the socket that becomes the new process's standard input. Answers: `forked PID` to each
request, and `ended PID STATUS` to the requester when that process ends; to the supervisor also an empty line, as a sign
of life. It ends when the supervisor's socket is closed.
"""

from __future__ import annotations
