from hypothesis import HealthCheck, settings

# No deadline, because the first example of a test compiles kernels; new examples in every run find more.
settings.register_profile(
    "adjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("adjoin")
