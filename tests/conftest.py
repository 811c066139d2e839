"""The cast of the tests: a noon, a minute, and hypothesis profiles."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,  # shared machines stall; slowness is measured where it matters
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")
