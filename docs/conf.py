"""Settings of the documentation."""

project = "offpolicy"
author = "The offpolicy developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
highlight_language = "none"  # a block without a language is what was printed
default_role = "literal"  # `name` in a docstring

html_theme = "furo"
html_title = "offpolicy"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike"}
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
