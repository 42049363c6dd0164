"""ListObjects v1 and v2 against what the keys say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

KEYS = sorted(
    ["a", "a-b", "a/", "a/1", "a/2", "a0", "b/c/d", "b/c/e", "b/x", "z"]
    + ["sp ace/+plus", "ü/1", "ctl\x01x", "100%", "<&>\"'"],
    key=str.encode,
)


@pytest.fixture(scope="module", params=["folder", "memory"])
def filled(request: pytest.FixtureRequest, module_devstore: Any) -> Any:
    s3 = module_devstore("mem:" if request.param == "memory" else None, "--bucket", "bucket").client()
    for key in KEYS:
        s3.put_object(Bucket="bucket", Key=key, Body=key.encode())
    return s3


def keys(page: dict[str, Any]) -> list[str]:
    return [entry["Key"] for entry in page.get("Contents", [])]


def prefixes(page: dict[str, Any]) -> list[str]:
    return [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]


def rolled_up(prefix: str, delimiter: str) -> tuple[list[str], list[str]]:
    plain, common = [], []
    for key in KEYS:
        if key.startswith(prefix):
            at = key.find(delimiter, len(prefix))
            if at < 0:
                plain.append(key)
            elif key[: at + len(delimiter)] not in common:
                common.append(key[: at + len(delimiter)])
    return plain, common


@pytest.mark.parametrize("version", ["list_objects", "list_objects_v2"])
class TestBoth:
    def test_everything_in_order(self, filled: Any, version: str) -> None:
        page = getattr(filled, version)(Bucket="bucket")
        assert keys(page) == KEYS
        assert not page["IsTruncated"]
        for entry in page["Contents"]:
            assert entry["Size"] == len(entry["Key"].encode())
            assert entry["ETag"] == filled.head_object(Bucket="bucket", Key=entry["Key"])["ETag"]
            assert entry["StorageClass"] == "STANDARD"

    @pytest.mark.parametrize("prefix", ["", "a", "a/", "b/", "b/c", "b/c/", "none", "sp ace/", "ü"])
    def test_prefix_and_delimiter(self, filled: Any, version: str, prefix: str) -> None:
        page = getattr(filled, version)(Bucket="bucket", Prefix=prefix)
        assert keys(page) == [key for key in KEYS if key.startswith(prefix)]
        page = getattr(filled, version)(Bucket="bucket", Prefix=prefix, Delimiter="/")
        assert (keys(page), prefixes(page)) == rolled_up(prefix, "/")

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
    @pytest.mark.parametrize("delimiter", ["", "/"])
    def test_pages(self, filled: Any, version: str, size: int, delimiter: str) -> None:
        paginator = filled.get_paginator(version)
        found: list[str] = []
        common: list[str] = []
        for page in paginator.paginate(Bucket="bucket", Delimiter=delimiter, PaginationConfig={"PageSize": size}):
            here = len(keys(page)) + len(prefixes(page))
            assert here == size if page["IsTruncated"] else here <= size
            found += keys(page)
            common += prefixes(page)
        assert (found, common) == (rolled_up("", "/") if delimiter else (KEYS, []))

    def test_sizes_of_pages(self, filled: Any, version: str) -> None:
        page = getattr(filled, version)(Bucket="bucket", MaxKeys=0)
        assert (keys(page), page["IsTruncated"]) == ([], False)
        assert getattr(filled, version)(Bucket="bucket", MaxKeys=5000)["MaxKeys"] == 1000
        with pytest.raises(ClientError) as error:
            getattr(filled, version)(Bucket="bucket", MaxKeys=-1)
        assert error.value.response["Error"]["Code"] == "InvalidArgument"


def test_v2_fields(filled: Any) -> None:
    page = filled.list_objects_v2(Bucket="bucket", StartAfter="a/1", MaxKeys=2)
    assert keys(page) == ["a/2", "a0"]
    assert (page["KeyCount"], page["StartAfter"], page["IsTruncated"]) == (2, "a/1", True)
    after = filled.list_objects_v2(Bucket="bucket", ContinuationToken=page["NextContinuationToken"], MaxKeys=1)
    assert keys(after) == ["b/c/d"]
    assert "Owner" not in page["Contents"][0]
    assert filled.list_objects_v2(Bucket="bucket", FetchOwner=True)["Contents"][0]["Owner"]["ID"]
    with pytest.raises(ClientError) as error:
        filled.list_objects_v2(Bucket="bucket", ContinuationToken="nonsense")
    assert error.value.response["Error"]["Code"] == "InvalidArgument"


def test_v1_markers(filled: Any) -> None:
    assert keys(filled.list_objects(Bucket="bucket", Marker="b/c/d"))[0] == "b/c/e"
    page = filled.list_objects(Bucket="bucket", Delimiter="/", Marker="a-b", MaxKeys=1)
    assert (prefixes(page), page["NextMarker"]) == (["a/"], "a/")
    assert keys(filled.list_objects(Bucket="bucket", Delimiter="/", Marker="a/", MaxKeys=1)) == ["a0"]


def test_many_keys(devstore: Any, tmp_path: Path) -> None:
    """A folder of 20,000 files, listed by pages while the folder changes."""
    for folder in ("a", "b"):
        (tmp_path / "root" / "bucket" / folder).mkdir(parents=True)
        for n in range(10_000):
            (tmp_path / "root" / "bucket" / folder / f"{n:05}").touch()
    s3 = devstore(tmp_path / "root").client()
    expected = [f"{folder}/{n:05}" for folder in ("a", "b") for n in range(10_000)]
    found: list[str] = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
        found += keys(page)
        (tmp_path / "root" / "bucket" / "b" / "zz").touch()
    assert found == [*expected, "b/zz"]
