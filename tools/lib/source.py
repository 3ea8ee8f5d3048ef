"""Which commit is measured."""
import os
import subprocess

from . import paths, term


def git(*arguments):
    try:
        done = subprocess.run(["git", *arguments], cwd=paths.ROOT, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def state():
    """(commit, dirty); ("unknown", True) where there is no repository. Only what is built and
    measured counts: an edited README does not make a measurement dirty. A copy of a clean commit
    without its .git is named by the variable LADDER_COMMIT."""
    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        given = os.environ.get("LADDER_COMMIT", "")
        return (given[:12], False) if given else ("unknown", True)
    changed = git("status", "--porcelain", "--", "steps/*.cu", "steps/*.h", "common",
                  "traps/*.cu", "traps/*.h", "CMakeLists.txt", "CMakePresets.json", "cmake")
    return commit, bool(changed)


def recordable(given=None):
    """The commit to write down. A dirty tree is refused: its numbers could not be traced."""
    commit, dirty = state()
    if commit == "unknown":
        if not given:
            raise term.UserError("there is no git repository here: name the commit of this tree "
                                 "with --commit ID")
        return given[:12]
    if given and not given.startswith(commit) and not commit.startswith(given):
        raise term.UserError(f"--commit {given} is not what is checked out: {commit}")
    if dirty:
        raise term.UserError("steps or common/ have changes that are not committed; commit them "
                             "first (./ladder run measures without recording)")
    return commit
