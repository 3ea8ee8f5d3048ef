"""Files that are either whole or not there: written beside, then renamed."""
import json
import os
import tempfile
from pathlib import Path

from .paths import shown
from .term import UserError


def write_text(path, text):
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {shown(path)}: {error.strerror}; "
                        "choose another folder with -o") from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def write_json(path, data):
    write_text(path, json.dumps(data, indent=1) + "\n")


def writable_folder(path):
    """Makes the folder and proves that it takes files, before anything is measured."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {shown(path)}/: {error.strerror}; "
                        "choose another folder with -o") from None
    return path


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
