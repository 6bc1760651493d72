"""The picture and the table of packages in docs/architecture.md, from the import graph.

python -m docs.pictures.architecture
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import grimp

DOCS = Path(__file__).parent.parent
PAGE, PICTURE = DOCS / "architecture.md", DOCS / "images" / "architecture.png"
SOURCE = DOCS.parent / "src" / "offpolicy"
MARK = re.compile(r"(<!-- packages -->\n).*?(<!-- end -->)", re.S)


def packages() -> list[str]:
    """The packages in the order of the import contract, starting with the one that imports no other."""
    project = (DOCS.parent / "pyproject.toml").read_text()
    listed = re.search(r'type = "layers"\nlayers = \[(.*?)\]', project, re.S)
    assert listed is not None
    names = re.findall(r'"offpolicy\.(\w+)"', listed[1])
    return [name for name in reversed(names) if name != "__main__"]


def purpose(package: str) -> str:
    """The first line of the package's docstring."""
    return (ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or "").splitlines()[0]


def modules(folder: Path) -> str:
    """The names of the modules in a package, with those of nested packages in brackets."""
    names = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path / "__init__.py").exists():
            names.append(f"{path.name} ({modules(path)})")
        elif path.suffix == ".py" and path.stem != "__init__":
            names.append(path.stem)
    return ", ".join(names)


def imports() -> Counter[tuple[str, str]]:
    """The number of imports between the modules of two packages, counted once per pair of modules."""
    graph, names = grimp.build_graph("offpolicy", cache_dir=None), packages()
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            a, b = ((*name.split("."), "")[1] for name in (importer, imported))
            if a != b and a in names and b in names:
                found[a, b] += 1
    return found


def escaped(text: str) -> str:
    return text.replace("|", r"\|")


def filled(page: str) -> str:
    """The page with its table rewritten from the source tree."""
    rows = [f"| `{name}/` | {escaped(purpose(name))} | {modules(SOURCE / name)} |" for name in packages()]
    table = "\n".join(["| package | what it is for | modules |", "| --- | --- | --- |", *rows])
    return MARK.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page)


def draw(path: Path) -> None:
    """Draw one row per package: its name, its purpose, and how often it imports each of those above it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names, counts = packages(), imports()
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(13.5, 0.36 * len(names) + 1.3), layout="constrained")
        axes = figure.subplots()
        most = max(counts.values())
        for i, importer in enumerate(names):
            axes.text(-17.4, i, importer, va="center", weight="bold", fontsize=10)
            axes.text(-14.6, i, purpose(importer), va="center", color="#333333")
            axes.add_patch(mpl.patches.Rectangle((i - 0.5, i - 0.5), 1, 1, color="#dddddd", linewidth=0))
            for j, imported in enumerate(names):
                number = counts[importer, imported]
                if number:
                    shade = 0.12 + 0.75 * (number / most) ** 0.5
                    colour = "#0072b2" if j < i else "#d55e00"  # an import that points downwards would stand out
                    axes.add_patch(mpl.patches.Rectangle((j - 0.5, i - 0.5), 1, 1, color=colour, alpha=shade, linewidth=0))
                    axes.text(j, i, str(number), ha="center", va="center", color="white" if shade > 0.55 else "black")
        axes.set_xlim(-17.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        axes.set_yticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
    draw(PICTURE)
