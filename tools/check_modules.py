#!/usr/bin/env python3
"""Holds every #include below src/ and python/src/ against the module table of ARCHITECTURE.md, and CMake's libraries too.
Prints what is wrong and exits 1.

usage: check_modules.py [ROOT]        ROOT is the repository (default: the one this file lies in)

Four rules: who may include whom (transitive, downwards only), who owns a third-party library, and what the pure modules
must not touch. The last is that no two types of production code have one name (they all live in one flat namespace).
CMake must link the modules that the table names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Who may include whom stands in ARCHITECTURE.md, as a table: | `src/MODULE` | what it is | modules right below it | ...
ROW = re.compile(r"^\| `src/(\w+)` \|[^|]*\| ([\w, -]+) \|", re.MULTILINE)
# In src/MODULE/CMakeLists.txt, the same modules stand behind DEPS.
LIBRARY = re.compile(r"millrace_library\((\w+)\b([^)]*)\)")


def read_table(root: Path) -> dict[str, set[str]]:
    """Module -> the modules right below it. Whatever those may include is included too."""
    table = dict(ROW.findall((root / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    below = {module: set(re.findall(r"\w+", text)) for module, text in table.items()}
    below["cli"] = below["python"] = set(table) - {"cli"}
    return below


TABLE = read_table(Path(__file__).resolve().parents[1])

# Tests may start the test server and use the helpers of any module below.
TEST_EXTRA = {"devstore"}

ANY = set(TABLE)

# Header (or the folder of headers, ending with '/') -> the modules that own it. The longest match counts.
OWNERS: dict[str, set[str]] = {
    "absl/": ANY,
    "fmt/": ANY,
    "nlohmann/": ANY,
    "boost/": {"net"},
    "openssl/": {"net"},
    "openssl/sha.h": {"base"},
    "openssl/core_names.h": {"base"},
    "openssl/md5.h": {"base"},
    "openssl/crypto.h": {"base"},
    "openssl/evp.h": {"base", "net"},  # certificates are made of EVP keys
    "openssl/rand.h": {"base", "net"},
    "xxhash": {"base"},
    "isa-l": {"base"},
    "zstd": {"base"},
    "spdlog/": {"base"},
    "pugi": {"aws"},
    "jpeglib.h": {"decode"},
    "jpegint.h": {"decode"},
    "jerror.h": {"decode"},
    "turbojpeg.h": {"decode"},
    "spng": {"decode"},
    "webp/": {"decode"},
    "tiffio.h": {"decode"},
    "gif_lib.h": {"decode"},
    "hwy/": {"decode"},
    "CLI/": {"cli"},
    "stb/": {"inspect"},
    "sanitizer/": {"cli"},  # a fuzzer
    "nanobind/": {"python"},
    "Python.h": {"python"},
    "fuse": {"mount"},
}
TEST_LIBRARIES = ("gtest/", "gmock/", "benchmark/")
SYSTEM_FOLDERS = ("sys/", "linux/", "netinet/", "arpa/", "net/if", "asm/", "bits/")

# No I/O, no threads, no clock: what is in here cannot be pure.
PURE = {"shard", "plan", "decode"}
IMPURE = {
    *(
        "thread",
        "mutex",
        "shared_mutex",
        "condition_variable",
        "future",
        "atomic",
        "semaphore",
        "latch",
        "barrier",
        "stop_token",
    ),
    *(
        "chrono",
        "ctime",
        "time.h",
        "random",
        "fstream",
        "iostream",
        "filesystem",
        "unistd.h",
        "fcntl.h",
        "pthread.h",
        "dirent.h",
    ),
    *("absl/time/clock.h", "base/log.h", "base/memory_budget.h", "base/thread_pool.h"),
}
IMPURE_FOLDERS = ("sys/", "absl/synchronization/")

# A type that a file defines outside of functions and other types; the formatter indents what is inside of these.
TYPE = re.compile(r"^(?:class|struct|union|enum(?: class)?) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : .*)?(?: \{|$)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def closure(module: str) -> set[str]:
    """All modules that `module` may include, itself among them."""
    found = {module}
    waiting = [module]
    while waiting:
        for below in TABLE[waiting.pop()] - found:
            found.add(below)
            waiting.append(below)
    return found


def is_test(path: Path) -> bool:
    return "testing" in path.parts or path.stem.endswith(("_test", "_fuzz", "_bench"))


def owner_of(header: str) -> set[str] | None:
    matches = [name for name in OWNERS if header.startswith(name)]
    return OWNERS[max(matches, key=len)] if matches else None


def check_include(path: Path, module: str, header: str) -> Iterator[str]:
    """Says what is wrong with one include of this file."""
    test = is_test(path)
    first = header.split("/")[0]
    if "/" in header and first in TABLE and not header.startswith(SYSTEM_FOLDERS):
        allowed = closure(module) | (TEST_EXTRA if test else set())
        if first not in allowed:
            yield f"{module} may not include {first} ({header})"
        if "testing" in header.split("/")[:-1] and not test:
            yield f"{header} is for tests only"
    elif header.startswith(TEST_LIBRARIES):
        if not test:
            yield f"{header} is for tests only"
    else:
        owners = owner_of(header)
        if owners is not None and module not in owners:
            yield f"{header} belongs to {' and '.join(sorted(owners))}, not to {module}"
        if owners is None and "/" in header and not header.startswith(SYSTEM_FOLDERS):
            yield f"{header} has no owner: add it to OWNERS in tools/check_modules.py"
    if module in PURE and not test and (header in IMPURE or header.startswith(IMPURE_FOLDERS)):
        yield f"{module} is pure and may not include {header}"


def sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Each C++ file, with its module."""
    for folder, module in ((root / "src", None), (root / "python/src", "python")):
        for path in sorted(p for p in folder.rglob("*") if p.suffix in {".h", ".hpp", ".cc", ".cpp"}):
            yield path, module or path.relative_to(folder).parts[0]


def check_libraries(root: Path) -> Iterator[str]:
    """Each module's library must link the modules that the table names, and no others."""
    for path in sorted(root.glob("src/*/CMakeLists.txt")):
        for module, arguments in LIBRARY.findall(path.read_text(encoding="utf-8")):
            if module != path.parent.name or module == "cli" or module not in TABLE:
                continue  # of tests, or of the program
            behind = re.split(r"\b(?=[A-Z_]+\b)", arguments + " ")
            linked = {name for part in behind if part.startswith("DEPS") for name in part.split()[1:]}
            if linked != TABLE[module]:
                yield f"{path.relative_to(root)}: {module} links {sorted(linked)}, the table has {sorted(TABLE[module])}"


def check(root: Path) -> list[str]:
    problems = list(check_libraries(root))
    types: dict[str, str] = {}  # where each is defined
    for path, module in sources(root):
        name = path.relative_to(root)
        if module not in TABLE:
            problems.append(f"{name}: {module} is not a module of the table")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            if match:
                problems.extend(f"{name}:{number}: {problem}" for problem in check_include(name, module, match[1]))
            match = None if is_test(path) else TYPE.match(line)
            if match and types.setdefault(match[1], f"{name}:{number}") != f"{name}:{number}":
                problems.append(f"{name}:{number}: there is a type {match[1]} already ({types[match[1]]})")
    return problems


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print(__doc__)
        return 2
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    if not (root / "src").is_dir():
        print(f"{root}: has no folder src", file=sys.stderr)
        return 2
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
