"""Has canaries: tools/check_modules.py must report each kind of bad include, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_modules.py"


def run(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    (root / "src").mkdir()
    for name, text in files.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "include", "complaint"),
    [
        ("base/a.cc", '"net/event_loop.h"', "base may not include net"),
        ("plan/a.h", '"store/object_store.h"', "plan may not include store"),
        ("store/a.cc", '"dataset/index.h"', "store may not include dataset"),
        ("store/a.cc", '"devstore/devstore.h"', "store may not include devstore"),
        ("dataset/a.cc", '"cache/block.h"', "dataset may not include cache"),
        ("cache/a.cc", '"plan/plan.h"', "cache may not include plan"),
        ("pack/a.cc", '"cli/console.h"', "pack may not include cli"),
        ("devstore/a.cc", '"store/object_store.h"', "devstore may not include store"),
        ("store/a_test.cc", '"dataset/index.h"', "store may not include dataset"),
        ("store/a.cc", '"store/testing/contract.h"', "for tests only"),
        ("store/a.cc", "<gtest/gtest.h>", "for tests only"),
        ("s3/a.cc", "<boost/asio/post.hpp>", "belongs to net"),
        ("net/a.cc", "<openssl/sha.h>", "belongs to base"),
        ("s3/a.cc", "<openssl/ssl.h>", "belongs to net"),
        ("s3/a.cc", "<openssl/evp.h>", "belongs to base and net"),
        ("store/a.cc", "<pugixml.hpp>", "belongs to aws"),
        ("pipeline/a.cc", "<jpeglib.h>", "belongs to decode"),
        ("pipeline/a.cc", '"hwy/highway.h"', "belongs to decode"),
        ("dataset/a.cc", "<xxhash.h>", "belongs to base"),
        ("shard/a.cc", "<isa-l/crc.h>", "belongs to base"),
        ("shard/a.cc", "<zstd.h>", "belongs to base"),
        ("net/a.cc", "<spdlog/spdlog.h>", "belongs to base"),
        ("dataset/a.cc", "<CLI/CLI.hpp>", "belongs to cli"),
        ("decode/a.cc", "<stb/stb_truetype.h>", "belongs to inspect"),
        ("store/a.cc", "<nobody/knows.h>", "has no owner"),
        ("shard/a.cc", "<thread>", "shard is pure"),
        ("plan/a.h", "<mutex>", "plan is pure"),
        ("plan/a.h", "<chrono>", "plan is pure"),
        ("decode/a.cc", "<fstream>", "decode is pure"),
        ("decode/a.cc", "<atomic>", "decode is pure"),
        ("shard/a.cc", "<sys/stat.h>", "shard is pure"),
        ("plan/a.cc", '"base/log.h"', "plan is pure"),
        ("rogue/a.cc", "<vector>", "not a module"),
        ("plan/a.cc", '"store/object_store.h"  // why', "plan may not include store"),
    ],
)
def test_reports(tmp_path: Path, name: str, include: str, complaint: str) -> None:
    code, lines = run(tmp_path, {name: f"#pragma once\n  #  include {include}\n"})
    assert code == 1
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"src/{name}")
    assert complaint in lines[0]


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("store/a.cc", '"base/status.h"'),
        ("store/a.cc", '"net/runtime.h"'),
        ("pipeline/a.cc", '"s3/object.h"'),
        ("pipeline/a.cc", '"decode/image.h"'),
        ("pipeline/a.cc", '"plan/plan.h"'),
        ("cli/a.cc", '"devstore/devstore.h"'),
        ("store/a_test.cc", '"store/testing/contract.h"'),
        ("store/a_test.cc", '"devstore/devstore.h"'),
        ("store/testing/a.cc", "<gtest/gtest.h>"),
        ("net/a.cc", "<boost/asio/post.hpp>"),
        ("net/a.cc", "<net/if.h>"),
        ("base/a.cc", "<sys/stat.h>"),
        ("plan/a_test.cc", "<thread>"),
        ("plan/a.cc", "<absl/numeric/int128.h>"),
    ],
)
def test_accepts(tmp_path: Path, name: str, include: str) -> None:
    assert run(tmp_path, {name: f"#include {include}\n"}) == (0, [])


def test_what_is_no_include_is_no_matter(tmp_path: Path) -> None:
    assert run(tmp_path, {"plan/a.cc": '// #include <thread>\nconst char* text = "#include <thread>";\n'}) == (0, [])


@pytest.mark.parametrize(
    "definition",
    [
        "struct Page {",
        "class Page final : public Base {",
        "class Page final",
        "enum class Page : uint8_t {",
        "class [[nodiscard]] Page {",
    ],
)
def test_two_types_of_one_name(tmp_path: Path, definition: str) -> None:
    files = {
        "devstore/a.h": "namespace millrace {\nstruct Page {\n};\nstruct Page;\n}\n",
        "s3/b.cc": f"namespace {{\n{definition}\n}};\n}}\n",
    }
    code, lines = run(tmp_path, files)
    assert (code, lines) == (1, ["src/s3/b.cc:2: there is a type Page already (src/devstore/a.h:2)"])


def test_one_name_within_other_types_and_in_tests(tmp_path: Path) -> None:
    files = {
        "s3/a.cc": "struct Client::Impl {\n  struct Page {\n  };\n};\n",
        "s3/b.cc": "struct Page;\nstruct Server::Impl {\n};\nclass Page {\n};\n",
        "s3/c_test.cc": "struct Page {\n};\n",
        "s3/testing/c.h": "struct Page {\n};\n",
        "net/d.cc": "template <>\nstruct Page<int> {\n};\n",
    }
    assert run(tmp_path, files) == (0, [])


@pytest.mark.parametrize("links", ["", "DEPS base", "DEPS s3 net", "DEPS net s3\n  PRIVATE s3"])
def test_a_library_that_links_other_modules(tmp_path: Path, links: str) -> None:
    code, lines = run(tmp_path, {"store/CMakeLists.txt": f"millrace_library(store\n  SOURCES\n    a.cc\n  {links})\n"})
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("src/store/CMakeLists.txt: store links [")


def test_libraries_as_the_table_has_them(tmp_path: Path) -> None:
    files = {
        "store/CMakeLists.txt": "millrace_library(store SOURCES net.cc DEPS s3 PRIVATE net)\nmillrace_test(store DEPS net)\n",
        "pipeline/CMakeLists.txt": "millrace_library(pipeline OFF_DATA_PATH SOURCES a.cc DEPS decode dataset\n cache)\n",
        "base/CMakeLists.txt": "millrace_library(base SOURCES a.cc)\nmillrace_library(base_testing SOURCES b.cc DEPS net)\n",
    }
    assert run(tmp_path, files) == (0, [])


def test_a_folder_without_sources_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "src" in done.stderr


def test_the_repository_keeps_the_table() -> None:
    done = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "")
