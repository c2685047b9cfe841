from hypothesis import HealthCheck, settings

# Machines differ and are shared: an example may take its time, a hang is the suite's timeout's business.
settings.register_profile("streamgauge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamgauge")
