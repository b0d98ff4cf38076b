"""`python -m recurcli`, the form that torchrun starts."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `-m` puts the current folder before everything else: a torch.py lying there would be imported instead of torch.
    package_root = str(Path(__file__).resolve().parent.parent)
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(Path.cwd())) or entry == package_root]

    from recurcli.cli import main

    main()
