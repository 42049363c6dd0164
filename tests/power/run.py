#!/usr/bin/env python3
"""Do the tests find faults? Applies each patch of this folder by itself, and runs the tests that must fail then.

A patch begins with lines that describe it and name the tests that must find it:

    Fault: the window of an extent is one sample too short
    Tests: plan                      modules whose C++ tests run (their ctest programs), or paths of Python tests
    Preset: tsan                     default: release

A fault counts as found if the tests pass without it and fail with it. If a fault does not compile, that is an error of the patch.

usage: run.py [PATCH...]             all of them without names; exits 1 if a fault is not found
       run.py --list                 what there is
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TREE = ROOT / "build" / "power"  # a work tree of its own, so that nobody's sources change
LONGEST_S = 1800  # of one run of tests: a fault may make them hang


class Fault(NamedTuple):
    patch: Path
    what: str
    tests: list[str]
    preset: str

    @property
    def modules(self) -> list[str]:
        return [test for test in self.tests if "/" not in test]

    @property
    def scripts(self) -> list[str]:
        return [test for test in self.tests if "/" in test]


def read(patch: Path) -> Fault:
    fields = dict(re.findall(r"^(Fault|Tests|Preset): (.*)$", patch.read_text().split("\ndiff ", 1)[0], re.MULTILINE))
    if not {"Fault", "Tests"} <= set(fields):
        raise SystemExit(f"{patch.name}: the lines 'Fault:' and 'Tests:' are missing before the diff")
    return Fault(patch, fields["Fault"], fields["Tests"].split(), fields.get("Preset", "release"))


def git(*arguments: str | Path) -> None:
    subprocess.run(["git", "-C", TREE, *arguments], check=True, stdout=subprocess.DEVNULL)


def lay_tree() -> None:
    """The commit that is checked out, and the changes that are not committed yet."""
    if TREE.exists():
        git("checkout", "--force", "--detach", "--quiet", head())
        git("clean", "-fdq", "-e", "build", "-e", ".venv")
    else:
        subprocess.run(["git", "-C", ROOT, "worktree", "prune"], check=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", TREE, head()], check=True)
        (TREE / ".venv").symlink_to(ROOT / ".venv")
    changes = subprocess.run(["git", "-C", ROOT, "diff", "HEAD", "--binary"], check=True, capture_output=True).stdout
    if changes.strip():
        subprocess.run(["git", "-C", TREE, "apply", "--index"], input=changes, check=True)


def head() -> str:
    return subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


def run(log: Path, *command: str | Path, **environment: str) -> bool:
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command, cwd=TREE, stdout=out, stderr=out, timeout=LONGEST_S, env=os.environ | environment, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def build(fault: Fault, log: Path) -> bool:
    targets = [f"{module}_test" for module in fault.modules]
    if fault.scripts:
        targets += ["millrace", "millrace_python"]
    return run(log, "cmake", "--preset", fault.preset, "-DMILLRACE_TESTS=ON") and run(
        log, "cmake", "--build", "--preset", fault.preset, "--target", *targets
    )


def passes(fault: Fault, log: Path) -> bool:
    binaries = TREE / "build" / fault.preset
    good = True
    if fault.modules:
        names = "|".join(rf"^{module}(_test)?\." for module in fault.modules)
        jobs = str(os.cpu_count() or 1)
        no_random = ["setarch", "--addr-no-randomize"] if fault.preset == "tsan" else []
        good = run(
            log, *no_random, "ctest", "--test-dir", binaries, "-L", "fast", "-R", names, "-j", jobs, "--no-tests=error"
        )
    if good and fault.scripts:
        places = {
            "MILLRACE_BIN": str(binaries / "bin" / "millrace"),
            "MILLRACE_BINARY_DIR": str(binaries),
            "PYTHONPATH": str(binaries / "python"),
        }
        pytest = [".venv/bin/python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.scripts]
        good = run(log, *pytest, **places)
    return good


def verdict(fault: Fault) -> str:
    log = ROOT / "build" / "test-logs" / f"power-{fault.patch.stem}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    lay_tree()
    git("apply", "--recount", "--index", fault.patch)
    if not build(fault, log):
        return f"DOES NOT COMPILE (see {log})"
    if not passes(fault, log):
        return "found"
    return f"NOT FOUND (see {log})"


def sound(faults: list[Fault]) -> bool:
    """The same tests pass without any fault; otherwise 'found' would mean nothing."""
    lay_tree()
    good = True
    for preset in sorted({fault.preset for fault in faults}):
        tests = sorted({test for fault in faults if fault.preset == preset for test in fault.tests})
        whole = Fault(HERE / f"none-{preset}", "none", tests, preset)
        log = ROOT / "build" / "test-logs" / f"power-none-{preset}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        if not (build(whole, log) and passes(whole, log)):
            print(f"without any fault, tests of preset {preset} fail (see {log})")
            good = False
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Applies each fault of this folder and says whether the tests find it."
    )
    parser.add_argument("patches", nargs="*", type=Path, help="default: all")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args()
    faults = [read(patch.resolve()) for patch in options.patches or sorted(HERE.glob("*.patch"))]
    if options.list:
        for fault in faults:
            print(f"{fault.patch.stem:28} {' '.join(fault.tests):32} {fault.what}")
        return 0
    if not sound(faults):
        return 1
    verdicts = []
    for fault in faults:
        verdicts.append(verdict(fault))
        print(f"{fault.patch.stem:28} {verdicts[-1]:12} {fault.what}", flush=True)
    found = verdicts.count("found")
    print(f"{found} passed, {len(faults) - found} failed")
    return 0 if found == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
