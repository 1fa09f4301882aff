"""The embeddable agent runtime: everything public, and nothing else.

`__init__.pyi` lists the names and their modules, for type checkers and for this file. A module is loaded when one of
its names is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in __all__ if not name.startswith("Coding")]  # `import *` would need the extra `llm`
