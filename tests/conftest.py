"""One profile for all property tests: the machine may be busy, so no deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile("krouter", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("krouter")
