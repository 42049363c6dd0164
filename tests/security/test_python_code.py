"""Code of others that Python might run: pickles of an old torch (C15), modules that a trainer names (C20)."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import millrace
import pytest
import torch
from millrace import checkpoint_import
from millrace.worker import _Functions


@pytest.mark.parametrize(
    "version, refused", [("2.5.1+cpu", True), ("1.13.0", True), ("2.6.0", False), ("2.10.0", False)]
)
def test_c15_an_old_torch_reads_no_pickles(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, version: str, refused: bool
) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "state.pt")
    loads: list[Any] = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *given, **named: loads.append(given) or load(*given, **named))
    monkeypatch.setattr(torch, "__version__", version)

    def read(allow_pickle: bool) -> Any:
        return checkpoint_import._of_torch(tmp_path / "state.pt", "state.pt", allow_pickle)

    if refused:
        with pytest.raises(millrace.InvalidArgumentError, match="install torch 2.6"):
            read(False)
        assert not loads
    else:
        assert read(False)["a"].tolist() == [1, 1]
    assert read(True)["a"].tolist() == [1, 1]  # the user trusts the file


def test_c15_nor_a_folder_of_dcp(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millrace import _import_dcp

    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(millrace.InvalidArgumentError, match="install torch 2.6"):
        _import_dcp.state_of(tmp_path, "folder", False)


def test_c20_only_the_module_that_was_named_is_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "c20_transforms"
    package.mkdir()
    (package / "__init__.py").write_text("def f(sample):\n    return sample\n")
    trap = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\ndef f(sample):\n    return sample\n"
    for name in ("__main__", "test_all"):
        (package / f"{name}.py").write_text(trap)
    monkeypatch.syspath_prepend(tmp_path)
    functions = _Functions(["c20_transforms"])
    for module in ("c20_transforms.__main__", "c20_transforms.test_all", "c20_transforms_x", "c20_transforms.", ""):
        with pytest.raises(millrace.InvalidArgumentError, match="runs functions of c20_transforms only"):
            functions.check((f"{module}:f",))
        assert module not in sys.modules
    assert not list(package.glob("*.ran"))
    functions.check(("c20_transforms:f",))
    _Functions(["c20_transforms.test_all"]).check(("c20_transforms.test_all:f",))
    assert list(package.glob("*.ran"))
