# What stands before either recorder.

import importlib.machinery
import importlib.util
import os
import sys


class Finder:
    """Waits for the import of a module."""

    def __init__(self, name, after):
        self.name, self.after = name, after

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            self.after(module)

        spec.loader.exec_module = exec_module
        return spec


def other():
    """The sitecustomize that this one hides."""
    here = os.path.dirname(os.path.realpath(__file__))
    path = [p for p in sys.path if os.path.realpath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
