from hypothesis import settings

# Examples that sync files take as long as the disk does.
settings.register_profile("draftkiln", deadline=None, max_examples=30)
settings.load_profile("draftkiln")
