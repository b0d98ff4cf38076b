"""`python -m recurcli`, the form that torchrun starts."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder before everything else: a torch.py lying there would be imported instead of torch.
    package_root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - as pathlib.py may lie there too
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd()) or entry == package_root]  # noqa: PTH109

    from recurcli.cli import main

    main()
