"""The command as a process, which handles signals before it imports anything else."""

from __future__ import annotations

from offpolicy.cli import signals


def _command() -> None:
    from offpolicy.cli.app import main

    main()


def main() -> None:
    """Run `offpolicy`, or `python -m offpolicy`."""
    signals.run(_command)


if __name__ == "__main__":
    main()
