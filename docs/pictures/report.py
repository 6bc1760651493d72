"""The picture of the report in the README: the top of the report that `make demo` writes, rendered by Chromium.

python -m docs.pictures.report
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.report.browser import launched

PICTURE = Path(__file__).parent.parent / "images" / "report.png"
SIZE = {"width": 1100, "height": 1180}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        demo = [sys.executable, "-m", "offpolicy", "demo", "--out", folder]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        page = browser.new_page(viewport=SIZE)
        page.goto((Path(folder) / "report.html").as_uri())
        page.screenshot(path=PICTURE)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:,.0f} KB")


if __name__ == "__main__":
    main()
