"""Create the virtual environment and install the exact versions of requirements.lock, for `make`.

Plain Python and nothing else, so that it runs on a bare machine, and on a Python too old to say so itself.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 13)
NEEDED_GB = 8  # torch alone takes 5.5


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def find_python():
    """Return a Python that fits: this one, else the newest fitting one on the path."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which("python3.%d" % minor)
        if found and subprocess.call([found, "-c", ""]) == 0:
            return found
    fail(
        "The course needs Python %d.%d to %d.%d, and this is %d.%d; install one of those, "
        "then run make PYTHON=/path/to/it." % (OLDEST + NEWEST + sys.version_info[:2])
    )


def main():
    venv = Path(sys.argv[1])
    python = find_python()
    inside = venv / "bin" / "python"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    fresh = not inside.exists() or subprocess.call([str(inside), "-m", "pip", "--version"], **quiet) != 0
    free = shutil.disk_usage(str(ROOT)).free / 1e9
    if fresh and free < NEEDED_GB:
        fail(
            "The environment needs about %d GB of disk and %.1f GB are free at %s; make room and run this again."
            % (NEEDED_GB, free, ROOT)
        )
    if fresh:
        print("Setting up %s: about 3 minutes, once." % venv)
        if subprocess.call([python, "-m", "venv", "--clear", str(venv)]) != 0:
            fail("Python's own venv failed (see above); on Debian, apt install python3-venv, then run this again.")
    pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    pip += ["--constraint", str(ROOT / "requirements.lock")]
    build = ["setuptools", "wheel"]
    for step in (build, ["--no-build-isolation", "--editable", "%s[book,test]" % ROOT]):
        if subprocess.call(pip + step) != 0:
            left = shutil.disk_usage(str(ROOT)).free / 1e9
            hint = "the disk is full" if left < 1 else "see pip's message above; is this machine online?"
            fail("Installing into %s failed (%s). Run the same command again to go on." % (venv, hint))
    (venv / ".ready").touch()


if __name__ == "__main__":
    os.environ.pop("PYTHONHOME", None)
    main()
