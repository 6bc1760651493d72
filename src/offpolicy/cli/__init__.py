"""The command: options, settings files, output and signals."""
