"""The command as a process: listens to signals before it loads anything."""

from __future__ import annotations

from offpolicy.cli import signals


def _command() -> None:
    from offpolicy.cli.app import main

    main()


def main() -> None:
    """`offpolicy`, or `python -m offpolicy`."""
    signals.run(_command)


if __name__ == "__main__":
    main()
