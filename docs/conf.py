"""Settings of the documentation."""

project = "offpolicy"
author = "The offpolicy developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
html_theme = "furo"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
