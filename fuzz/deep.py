"""`python -m fuzz.deep csv -runs=20000`: atheris (the extra `fuzz`) searches for bytes that reach new code of a reader."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Fuzz one target, with the valid file as the first of its corpus; further arguments go to libFuzzer."""
    try:
        import atheris
    except ImportError:
        print("atheris is not installed (the extra 'fuzz'; Linux only). `python -m fuzz` works without it.", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["offpolicy"]):  # so nothing of offpolicy may be imported above
        from fuzz.readers import TARGETS, good, tried
    target = sys.argv[1] if len(sys.argv) > 1 else ""
    if target not in TARGETS:
        print(
            f"usage: python -m fuzz.deep {{{','.join(TARGETS)}}} [-runs=20000] [-max_total_time=60] [CORPUS]",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as corpus:
        (Path(corpus) / "good").write_bytes(good(target))
        atheris.Setup([sys.argv[0], *sys.argv[2:], corpus], lambda data: tried(target, data) and None)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
