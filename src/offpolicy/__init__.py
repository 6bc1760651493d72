"""What a new policy would have earned, from the logs of the old one, when there are very many actions."""

import lazy_loader

__version__ = "0.1.0"

# Names are loaded when they are first asked for, so that `import offpolicy` stays fast; __init__.pyi lists them once, for
# Python as for type checkers and editors.
__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["__version__", *(name for name in _names if name != "worlds")]
