"""Where things are. `LADDER_ROOT` moves the root in tests."""
import os
from pathlib import Path

ROOT = Path(os.environ.get("LADDER_ROOT") or Path(__file__).resolve().parents[2])
STEPS = ROOT / "steps"
BUILD = ROOT / "build"
OUT = ROOT / "out"
VENV = ROOT / ".venv"
RECORDED = ROOT / "plots" / "results"


def shown(path):
    """A path as the user would type it from where they are."""
    path = Path(path)
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return str(path)
    return str(path) if relative.startswith("..") else relative
