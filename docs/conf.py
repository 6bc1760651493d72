"""Settings of the documentation."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "offpolicy"
author = "The offpolicy developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "commands", "mathml", "signatures"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
highlight_language = "none"  # a block without a language is what was printed
default_role = "literal"  # `name` in a docstring

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "offpolicy"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in words beside each parameter's description
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 100
