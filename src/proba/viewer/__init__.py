"""Looking at results: browser viewer, one-file page, playback. Import the modules directly: some are slow to load."""
