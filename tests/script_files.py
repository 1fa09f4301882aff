"""The scripts in `scripts/` that are written in Python, loaded as modules."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

from tests.source_files import ROOT


def load_script(name: str) -> ModuleType:
    """Load `scripts/NAME`, which has no suffix, without running its `main`."""
    loader = SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module
