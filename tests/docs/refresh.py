"""`python -m tests.docs.refresh [PAGE …]`: rewrite the outputs shown in the pages with what their code prints."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs import pages


def refreshed(text: str, name: str) -> str:
    """The page with every block of output as its code prints it now."""
    with tempfile.TemporaryDirectory() as folder:
        shown = pages.run(text, name, Path(folder))
    for each in reversed(shown):  # from the end, so that earlier positions stay valid
        start, body = each.block.start, each.block.body
        if each.printed.strip() != body.strip():
            text = text[:start] + each.printed.strip("\n") + "\n" + text[start + len(body) :]
    return text


def main(names: list[str]) -> None:
    for page in [path for path in pages.PAGES if not names or path.name in names]:
        before = page.read_text()
        after = refreshed(before, page.name)
        page.write_text(after)
        print(f"{page.name}: {'unchanged' if after == before else 'changed'}")


if __name__ == "__main__":
    main(sys.argv[1:])
