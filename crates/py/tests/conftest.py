"""Setup of all tests."""

from __future__ import annotations

import signal

# A shell starts its background commands with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
