"""Hostile input: made-up logs, policies, settings and command lines, each judged by an oracle. Run `python -m fuzz`."""
