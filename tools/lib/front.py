"""Dispatch to tools/COMMAND.py, and the ends a run can have: done, error, Ctrl-C, closed pipe."""
import argparse
import ast
import importlib
import os
import signal
import sys

from . import paths, term

TOOLS = paths.Path(__file__).resolve().parents[1]
FIRST = ["run", "list", "check", "bench", "plot", "sweep", "record", "export", "test"]

HEAD = """\
usage: ./ladder COMMAND [...]        ./ladder COMMAND --help

The GEMM ladder: one matrix product, from a naive CUDA kernel to the speed of cuBLAS.

commands:"""
TAIL = """
steps:  10, 07-12, 06_warp_tile or all      sizes:  4096 or 4096x4096x512 (MxNxK)
Start with: ./ladder run"""


class Parser(argparse.ArgumentParser):
    """Errors in one line, as everywhere."""

    def error(self, message):
        raise term.UserError(f"{message} ({self.prog} --help)")


def commands():
    """{name: first line of its docstring}. Files with an underscore are not commands."""
    names = sorted(p.stem for p in TOOLS.glob("*.py") if "_" not in p.stem)
    names.sort(key=lambda n: FIRST.index(n) if n in FIRST else len(FIRST))
    return {n: doc(n).splitlines()[0] for n in names}


def doc(name):
    tree = ast.parse((TOOLS / f"{name}.py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree, clean=False) or ""


def usage():
    rows = [f"  {name:<10} {term.clip(summary, 66)}" for name, summary in commands().items()]
    return "\n".join([HEAD, *rows, TAIL])


def parser(name):
    """An argument parser whose --help is the docstring of the command's file."""
    return Parser(prog=f"./ladder {name}", description=doc(name), allow_abbrev=False,
                  formatter_class=argparse.RawDescriptionHelpFormatter)


def _open_streams():
    """Standard streams that were closed (`<&-`) become /dev/null, so that no file gets their
    numbers and nothing is None."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))


def main(argv):
    _open_streams()
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGHUP, _terminated)
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except term.UserError as error:
        term.error(error)
        return error.code
    except BrokenPipeError:
        # The reader has gone (`| head -1`): no words, and none from the interpreter's exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        term.error(f"{error.filename or 'output'}: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return 130
    except Terminated:
        return 143


class Terminated(BaseException):
    """SIGTERM or SIGHUP: unwinds like Ctrl-C, so that children end and locks open."""


def _terminated(*_):
    raise Terminated


def _dispatch(argv):
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    known = commands()
    name, rest = argv[0], argv[1:]
    if name not in known:
        import difflib
        close = difflib.get_close_matches(name, known, 1, 0.6)
        raise term.UserError(f"there is no command '{name}'"
                             + (f", did you mean {close[0]}?" if close else "")
                             + f" Commands: {' '.join(known)}")
    module = importlib.import_module(f"tools.{name}")
    options = parser(name)
    module.arguments(options)
    # Flags for a program behind the command, like Google Benchmark's, are passed on unread.
    prefix = getattr(module, "PASS_ON", None)
    passed_on = [word for word in rest if prefix and word.startswith(prefix)]
    args = options.parse_args([word for word in rest if word not in passed_on])
    args.passed_on = passed_on
    return module.main(args) or 0
