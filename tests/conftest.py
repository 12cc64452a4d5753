from hypothesis import HealthCheck, settings

# The first example of a test compiles kernels, so no deadline; random order and new examples each run find more.
settings.register_profile("adjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("adjoin")
