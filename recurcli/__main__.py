"""`python -m recurcli`, the form that torchrun starts."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder before everything else: a torch.py lying there would be imported instead of torch.
    package_root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - as pathlib.py may lie there too
    if sys.path[0] in ("", os.getcwd()) and sys.path[0] != package_root:  # noqa: PTH109
        del sys.path[0]  # that one alone: a package of one's own in this folder may be installed from there

    from recurcli.cli import main

    main()
