"""Everyday ways to copy and to make files. Each is a script that runs in an empty folder: on a local disk, on `millrace mount --writable`, and on mounts of s3fs and rclone.

A way works on a file system if the script ends with 0 there, and leaves the tree that it leaves on a local disk.

    tests/mount/everyday.py                        # the table of docs/semantics.md
    tests/mount/everyday.py --only millrace --way "vim*"
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from e2e.harness import Sandbox, Server, devstore
from e2e.mounting import is_mounted, mounted, wait_until
from everyday_way import Way, python, shell
from everyday_work import FRAMEWORKS, LINKS, WORK
from thoroughness import ALL

LIMIT = 600  # seconds of one way: it only ends a hang
# Files that are others each time, and are not compared.
VOLATILE = (".git/index", "*/.git/index", "*.pyc", "*/logs/*", "*.git/description")
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SOURCE_DATE_EPOCH": "1700000000",
}


COPIES = [
    shell("cp", script='cp "$SRC/a.txt" b && cmp b "$SRC/a.txt"'),
    shell("cp over a file", script='echo old > b && cp "$SRC/a.txt" b && cmp b "$SRC/a.txt"'),
    shell("cp -r", script='cp -r "$SRC" t && diff -r t "$SRC"'),
    shell(
        "cp -a", script='cp -a "$SRC" t && diff -r t "$SRC" && test t/run -nt t/none && test ! t/a.txt -nt "$SRC/a.txt"'
    ),
    shell("cp -p", script='cp -p "$SRC/run" . && test -x run && test ! run -nt "$SRC/run"'),
    shell("cp within", script='cp "$SRC/d/b.bin" x && cp x y && cmp x y'),
    shell("cp --sparse=always", script="truncate -s 3M x && cp --sparse=always x y && cmp x y"),
    shell("cp --reflink=auto", script='cp "$SRC/d/b.bin" x && cp --reflink=auto x y && cmp x y'),
    shell("cp --backup", script='echo 1 > x && cp --backup "$SRC/a.txt" x && grep 1 x~'),
    shell("mv into it", script='cp -r "$SRC" "$TMP/s" && mv "$TMP/s" t && diff -r t "$SRC"'),
    shell("mv a file", script="echo 1 > x && mv x y && test ! -e x && grep 1 y"),
    shell("mv over a file", script="echo 1 > x && echo 2 > y && mv -f x y && test ! -e x && grep 1 y"),
    shell("mv a folder", script='cp -r "$SRC" t && mv t u && test ! -e t && diff -r u "$SRC"'),
    shell("install -m", script='install -m 750 -D "$SRC/a.txt" bin/x && test "$(stat -c %a bin/x)" = 750'),
    shell("dd", script='dd if="$SRC/d/b.bin" of=x bs=64k status=none && cmp x "$SRC/d/b.bin"'),
    shell(
        "dd conv=notrunc seek=",
        script='cp "$SRC/d/b.bin" x && printf abc | dd of=x bs=1 seek=1000 conv=notrunc status=none && test "$(dd if=x bs=1 skip=1000 count=3 status=none)" = abc',
    ),
    shell("dd conv=fsync", script='dd if="$SRC/d/b.bin" of=x bs=1M conv=fsync status=none && cmp x "$SRC/d/b.bin"'),
    shell(
        "dd oflag=direct",
        script='dd if=/dev/zero of=x bs=1M count=3 oflag=direct status=none && test "$(stat -c %s x)" = 3145728',
    ),
    shell("cat >", script='cat "$SRC/a.txt" "$SRC/d/b.bin" > x && cat "$SRC/a.txt" "$SRC/d/b.bin" | cmp - x'),
    shell("tee", script='tee x < "$SRC/d/b.bin" | cmp - "$SRC/d/b.bin" && cmp x "$SRC/d/b.bin"'),
    shell("tar x", script='tar c -C "$SRC" . | tar x && diff -r . "$SRC"'),
    shell(
        "tar c",
        script='tar cf x.tar --mtime=@0 -C "$SRC" . && tar tf x.tar | grep a.txt && tar df x.tar -C "$SRC" >/dev/null || tar tf x.tar >/dev/null',
    ),
    shell(
        "tar r",
        script='tar cf x.tar -C "$SRC" a.txt && tar rf x.tar -C "$SRC" run && test "$(tar tf x.tar | wc -l)" = 2',
    ),
    shell("zip", "zip", "unzip", script='cp -r "$SRC" t && zip -qr x.zip t && unzip -qt x.zip', compares=False),
    shell(
        "unzip",
        "zip",
        "unzip",
        script='(cd "$SRC" && zip -qr "$TMP/x.zip" .) && unzip -q "$TMP/x.zip" && diff -r . "$SRC"',
    ),
    shell("rsync -a", "rsync", script='rsync -a "$SRC/" t && diff -r t "$SRC" && test -z "$(rsync -ai "$SRC/" t)"'),
    shell(
        "rsync --inplace",
        "rsync",
        script='cp "$SRC/d/b.bin" x && rsync --inplace --no-whole-file "$SRC/a.txt" x && cmp x "$SRC/a.txt"',
    ),
    python(
        "shutil.copy2",
        script="import os, shutil; shutil.copy2(os.environ['SRC'] + '/run', 'run'); assert os.stat('run').st_mtime == os.stat(os.environ['SRC'] + '/run').st_mtime",
    ),
    python("shutil.copytree", script="import os, shutil; shutil.copytree(os.environ['SRC'], 't')"),
    python(
        "shutil.move",
        script="import shutil; open('x', 'w').write('1'); shutil.move('x', 'y'); shutil.copytree('.', 't'); shutil.move('t', 'u')",
    ),
    shell("curl -o", "curl", script='curl -sS -o x "file://$SRC/d/b.bin" && cmp x "$SRC/d/b.bin"'),
]

MAKES = [
    shell("echo >", script="echo 1 > x && grep 1 x"),
    shell("echo >>", script="echo 1 > x && echo 2 >> x && echo 3 >> x && test \"$(cat x)\" = $'1\\n2\\n3'"),
    shell("touch", script='touch x && test -e x && touch -d 2001-02-03 x && test "$(date -r x +%Y)" = 2001'),
    shell("mkdir -p", script="mkdir -p a/b/c && echo 1 > a/b/c/d && rm -r a && test ! -e a"),
    shell(
        "truncate",
        script='truncate -s 100 x && truncate -s 10 x && truncate -s 1M x && test "$(stat -c %s x)" = 1048576',
    ),
    shell("fallocate", script='fallocate -l 1M x && test "$(stat -c %s x)" = 1048576'),
    shell("chmod, chown", script='echo 1 > x && chmod 640 x && test "$(stat -c %a x)" = 640 && chown "$(id -u)" x'),
    shell("sed -i", script="printf 'a\\nb\\n' > x && sed -i s/a/c/ x && test \"$(head -1 x)\" = c"),
    shell("perl -i", "perl", script="printf 'a\\n' > x && perl -pi -e s/a/c/ x && grep c x"),
    shell("sort -o", script="printf 'b\\na\\n' > x && sort -o x x && test \"$(head -1 x)\" = a"),
    shell(
        "patch",
        "patch",
        script="printf 'a\\nb\\n' > x && printf -- '--- x\\n+++ x\\n@@ -1,2 +1,2 @@\\n-a\\n+c\\n b\\n' | patch -s x && test \"$(head -1 x)\" = c",
    ),
    shell("split", script='split -b 1000000 "$SRC/d/b.bin" part- && cat part-* | cmp - "$SRC/d/b.bin"'),
    shell(
        "gzip",
        script='cp "$SRC/a.txt" x && gzip -n x && gzip -dc x.gz | cmp - "$SRC/a.txt" && gunzip x.gz && cmp x "$SRC/a.txt"',
    ),
    shell("vim", "vim", script="printf 'a\\n' > x && vim -u NONE -N -es -c 's/a/c/' -c 'wq' x && grep c x"),
    shell(
        "vim with backup and undo",
        "vim",
        script="printf 'a\\n' > x && vim -u NONE -N -es -c 'set backup undofile' -c 's/a/c/' -c 'wq' x && grep c x",
        compares=False,
    ),
    shell("ed", "ed", script="printf 'a\\n' > x && printf 's/a/c/\\nw\\nq\\n' | ed -s x && grep c x"),
    shell("flock", "flock", script="flock l -c 'echo 1 > x' && ! (flock l sh -c 'flock -n l true')"),
    shell("mktemp", script='f=$(mktemp -p .) && echo 1 > "$f" && mv "$f" x && grep 1 x'),
    shell(
        "exec 3<>",
        script='echo abc > x && exec 3<> x && head -c 1 <&3 >/dev/null; echo z >&3; exec 3>&- && test "$(stat -c %s x)" -gt 3',
        compares=False,
    ),
    shell(
        "a log of two programs",
        script="for i in 1 2 3; do echo $i; done >> x & for i in 4 5 6; do echo $i; done >> x; wait; test \"$(sort -n x | tr -d '\\n')\" = 123456",
        compares=False,
    ),
    shell(
        "tail -f",
        script='echo 1 > x; (timeout 20 tail -n +1 -f x || true) | grep -m1 2 > "$TMP/seen" & sleep 0.5; echo 2 >> x; wait; grep 2 "$TMP/seen"',
        compares=False,
    ),
    shell(
        "gcc",
        "gcc",
        script='printf \'int main(){return 0;}\' > m.c && gcc -o m m.c && cp m "$TMP/m" && "$TMP/m"',
        compares=False,
    ),
    shell(
        "ar",
        "ar",
        script='cp "$SRC/a.txt" a && ar rD x.a a 2>/dev/null && ar tD x.a | grep a || ar t x.a | grep a',
        compares=False,
    ),
    shell(
        "git init, add, commit",
        "git",
        script='git init -q r && cd r && echo 1 > f && git add f && git commit -qm m && test -z "$(git status --porcelain)" && git fsck',
        compares=False,
    ),
    shell(
        "git clone",
        "git",
        script='git init -q "$TMP/o" && cd "$TMP/o" && cp -r "$SRC"/* . && git add . && git commit -qm m && cd - && git clone -q "$TMP/o" c && cd c && test -z "$(git status --porcelain)" && git fsck && git gc -q',
        compares=False,
    ),
    shell(
        "git checkout",
        "git",
        script="git init -q r && cd r && echo 1 > f && git add f && git commit -qm 1 && git checkout -qb b && echo 2 > f && git commit -qam 2 && git checkout -q - && grep 1 f && git merge -q b && grep 2 f",
        compares=False,
    ),
    shell(
        "sqlite3",
        "sqlite3",
        script="sqlite3 db 'create table t(x); insert into t values (1),(2)' && sqlite3 db 'update t set x = x + 1; vacuum' && test \"$(sqlite3 db 'select sum(x) from t')\" = 5",
        compares=False,
    ),
    shell(
        "sqlite3, WAL",
        "sqlite3",
        script="sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values (1)' >/dev/null && test \"$(sqlite3 db 'select x from t')\" = 1",
        compares=False,
    ),
    shell(
        "logrotate",
        "logrotate",
        script='mkdir l && echo 1 > l/x.log && printf \'%s/l/x.log {\\nrotate 2\\ncreate\\n}\\n\' "$PWD" > "$TMP/c" && logrotate -f -s "$TMP/s" "$TMP/c" && test -e l/x.log.1',
        compares=False,
    ),
    shell(
        "pip --target",
        "pip",
        script='"$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target t "$WHEEL" && test -e t/thing.py',
        compares=False,
    ),
]

LIBRARIES = [
    python(
        "a file that is open is removed",
        script="import os; f = open('x', 'w+b'); f.write(b'12'); os.remove('x'); f.seek(0); assert f.read() == b'12'",
    ),
    python(
        "a file that is open is renamed",
        script="import os; f = open('x', 'wb', 0); f.write(b'1'); os.rename('x', 'y'); f.write(b'2'); f.close(); assert open('y', 'rb').read() == b'12'",
    ),
    python(
        "tempfile and os.replace",
        script="import os, tempfile; f = tempfile.NamedTemporaryFile(dir='.', delete=False); f.write(b'1'); f.flush(); os.fsync(f.fileno()); os.replace(f.name, 'x'); f.close(); assert open('x', 'rb').read() == b'1'",
    ),
    python(
        "mmap",
        script="import mmap; f = open('x', 'w+b'); f.truncate(10000); m = mmap.mmap(f.fileno(), 10000); m[5000:5003] = b'abc'; m.flush(); m.close(); f.close(); assert open('x', 'rb').read()[5000:5003] == b'abc'",
    ),
    python(
        "a program reads what it writes",
        script="f = open('x', 'w+b'); f.write(b'0123456789' * 100000); f.seek(5); assert f.read(3) == b'567'; f.write(b'!'); f.seek(8); assert f.read(1) == b'!'",
    ),
    python(
        "os.sendfile, os.copy_file_range",
        script="import os; a = open(os.environ['SRC'] + '/d/b.bin', 'rb'); b = open('x', 'wb'); n = os.fstat(a.fileno()).st_size\nwhile n: n -= os.sendfile(b.fileno(), a.fileno(), None, n)\nb.close(); a = open('x', 'rb'); b = open('y', 'wb'); n = os.fstat(a.fileno()).st_size\nwhile n: n -= os.copy_file_range(a.fileno(), b.fileno(), n)\nb.close(); assert open('x', 'rb').read() == open('y', 'rb').read()",
    ),
    python(
        "zipfile",
        script="import zipfile; z = zipfile.ZipFile('x.zip', 'w'); z.writestr('a', b'1' * 100000); z.writestr('b', b'2'); z.close(); z = zipfile.ZipFile('x.zip', 'a'); z.writestr('c', b'3'); z.close(); assert zipfile.ZipFile('x.zip').testzip() is None",
        compares=False,
    ),
    python(
        "shelve",
        script="import shelve; d = shelve.open('x'); d['a'] = 1; d.close(); d = shelve.open('x'); d['b'] = d['a'] + 1; d.close(); assert shelve.open('x')['b'] == 2",
        compares=False,
    ),
    python(
        "logging with rotation",
        script="import logging, logging.handlers; h = logging.handlers.RotatingFileHandler('x.log', maxBytes=100, backupCount=2)\nfor i in range(20): h.emit(logging.LogRecord('a', 20, 'b', 1, 'line %d', (i,), None))\nh.close()",
    ),
    python(
        "wave",
        script="import wave; w = wave.open('x.wav', 'wb'); w.setparams((1, 2, 8000, 0, 'NONE', '')); w.writeframes(b'12' * 9000); w.writeframes(b'34'); w.close(); assert wave.open('x.wav').getnframes() == 9001",
    ),
    python(
        "numpy.save, numpy.savez",
        "numpy",
        script="import numpy; numpy.save('x.npy', numpy.arange(100000)); numpy.savez('x.npz', a=numpy.arange(9), b=numpy.arange(100000)); assert numpy.load('x.npz')['b'][-1] == 99999",
        compares=False,
    ),
    python(
        "numpy.memmap",
        "numpy",
        script="import numpy; m = numpy.memmap('x', 'float32', 'w+', shape=(1000, 100)); m[:] = 1; m.flush(); del m; m = numpy.memmap('x', 'float32', 'r+', shape=(1000, 100)); m[5] = 2; m.flush(); del m; assert numpy.memmap('x', 'float32', 'r', shape=(1000, 100))[5, 0] == 2",
    ),
    python(
        "numpy.lib.format.open_memmap",
        "numpy",
        script="import numpy; m = numpy.lib.format.open_memmap('x.npy', 'w+', 'int64', (1000,)); m[:] = 7; del m; assert numpy.load('x.npy', mmap_mode='r')[999] == 7",
    ),
    python(
        "torch.save",
        "torch",
        script="import torch; torch.save({'w': torch.arange(100000)}, 'x.pt'); torch.save({'w': torch.arange(9)}, 'x.pt'); assert torch.load('x.pt')['w'][8] == 8; torch.load('x.pt', mmap=True)",
        compares=False,
    ),
    python(
        "torch.distributed.checkpoint",
        "torch",
        script="import torch, torch.distributed.checkpoint as d; s = {'w': torch.arange(1000.)}; d.save(s, checkpoint_id='c'); t = {'w': torch.zeros(1000)}; d.load(t, checkpoint_id='c'); assert t['w'][9] == 9; d.save(s, checkpoint_id='c')",
        compares=False,
    ),
    python(
        "safetensors",
        "safetensors",
        "numpy",
        script="import numpy, safetensors.numpy as s; s.save_file({'w': numpy.arange(100000)}, 'x.safetensors'); s.save_file({'w': numpy.arange(9)}, 'x.safetensors'); assert s.load_file('x.safetensors')['w'][8] == 8",
    ),
    python(
        "Parquet",
        "pyarrow",
        script="import pyarrow, pyarrow.parquet as p; p.write_table(pyarrow.table({'a': list(range(10000))}), 'x.parquet'); assert p.read_table('x.parquet', memory_map=True).num_rows == 10000",
    ),
    python(
        "Arrow IPC, mapped",
        "pyarrow",
        script="import pyarrow\nwith pyarrow.OSFile('x.arrow', 'wb') as f:\n  with pyarrow.ipc.new_file(f, pyarrow.schema([('a', 'int64')])) as w: w.write(pyarrow.record_batch({'a': [1, 2]}))\nassert pyarrow.ipc.open_file(pyarrow.memory_map('x.arrow')).read_all().num_rows == 2",
    ),
    python(
        "Pillow",
        "PIL",
        script="from PIL import Image; Image.new('RGB', (640, 480), 'red').save('x.png'); Image.new('RGB', (640, 480)).save('x.tiff'); Image.new('RGB', (640, 480)).save('x.jpg'); assert Image.open('x.tiff').size == (640, 480)",
    ),
    python(
        "webdataset's TarWriter",
        "webdataset",
        script="import webdataset\nwith webdataset.TarWriter('x.tar') as t: t.write({'__key__': 'a', 'txt': 'b'})",
        compares=False,
    ),
    python(
        "fsspec",
        "fsspec",
        script="import fsspec; f = fsspec.filesystem('file').open('x', 'wb', autocommit=False); f.write(b'1'); f.close(); f.commit(); assert open('x', 'rb').read() == b'1'",
    ),
    python(
        "filelock",
        "filelock",
        script="import filelock\nwith filelock.FileLock('l', timeout=60): open('x', 'w').write('1')\nwith filelock.FileLock('l', timeout=60): pass\nwith filelock.SoftFileLock('s', timeout=60): pass",
        compares=False,
    ),
    python(
        "HDF5",
        "h5py",
        script="import h5py\nwith h5py.File('x.h5', 'w') as f: f['a'] = list(range(1000))\nwith h5py.File('x.h5', 'a') as f: f['b'] = 1\nassert h5py.File('x.h5')['a'][9] == 9",
        compares=False,
    ),
    python(
        "zarr",
        "zarr",
        script="import zarr; z = zarr.open('x.zarr', mode='w', shape=(100,), chunks=(10,), dtype='i4'); z[:] = 1; assert zarr.open('x.zarr')[5] == 1",
        compares=False,
    ),
    python(
        "tensorboardX",
        "tensorboardX",
        script="import tensorboardX; w = tensorboardX.SummaryWriter('r'); w.add_scalar('a', 1, 1); w.flush(); w.add_scalar('a', 2, 2); w.close()",
        compares=False,
    ),
    python(
        "TensorBoard",
        "tensorboard",
        "torch",
        script="from torch.utils.tensorboard import SummaryWriter; w = SummaryWriter('r'); w.add_scalar('a', 1, 1); w.flush(); w.add_scalar('a', 2, 2); w.close()",
        compares=False,
    ),
]
GROUPS = {"copy": COPIES, "make": MAKES, "work": WORK, "link": LINKS, "library": LIBRARIES + FRAMEWORKS}
WAYS = [replace(way, group=group) for group, ways in GROUPS.items() for way in ways]


def make_source(folder: Path) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"a line\n" * 100)
    (folder / "d" / "b.bin").write_bytes(random.Random(1).randbytes(3_000_001))
    (folder / "d" / "empty").write_bytes(b"")
    (folder / "d" / "e" / "a name with spaces \u00e9").write_bytes(b"x")
    (folder / "run").write_bytes(b"#!/bin/sh\nexit 0\n")
    (folder / "run").chmod(0o755)
    for path in folder.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))


def make_wheel(folder: Path) -> Path:
    """The smallest package that pip installs."""
    import zipfile

    path = folder / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("thing.py", "value = 1\n")
        wheel.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        wheel.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            "thing-1.dist-info/RECORD",
            "thing.py,,\nthing-1.dist-info/METADATA,,\nthing-1.dist-info/WHEEL,,\nthing-1.dist-info/RECORD,,\n",
        )
    return path


def missing(way: Way) -> list[str]:
    import importlib.util

    def is_module(name: str) -> bool:
        return all(importlib.util.find_spec(part) for part in (name.split(".")[0], name))

    return [name for name in way.needs if shutil.which(name) is None and not is_module(name)]


def tree(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"to {os.readlink(path)}"
        elif path.is_file() and not any(fnmatch.fnmatch(name, pattern) for pattern in VOLATILE):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@dataclass
class Bench:
    """The files that all ways need, on a local disk."""

    root: Path

    def __post_init__(self) -> None:
        self.root.mkdir(exist_ok=True)
        make_source(self.root / "source")
        self.wheel = make_wheel(self.root)
        self.number = 0

    def run(self, way: Way, folder: Path) -> str:
        """ "" if the script ends with 0; else what went wrong."""
        self.number += 1
        scratch = self.root / f"scratch{self.number}"
        scratch.mkdir()
        folder.mkdir()
        command = [sys.executable, "-c", way.script] if way.is_python else ["bash", "-ec", way.script]
        home = {"HOME": str(scratch), "TMP": str(scratch), "SRC": str(self.root / "source")}
        programs = {"PYTHON": sys.executable, "WHEEL": str(self.wheel)}
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | ENVIRONMENT | home | programs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            said = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return f"did not end within {LIMIT} s"
        return "" if process.returncode == 0 else said.strip()[-500:] or f"ended with {process.returncode}"

    def compare(self, way: Way, folder: Path) -> str:
        """ "" if the way works in that folder as it does on the local disk."""
        local = self.root / f"local{self.number}"
        if way.compares or ALL:
            assert (failed := self.run(way, local)) == "", f"{way.name} fails on a local disk: {failed}"
        if failed := self.run(way, folder):
            return failed
        if not way.compares:
            return ""
        want, got = tree(local), tree(folder)
        return "" if want == got else f"another tree: {sorted(set(want.items()) ^ set(got.items()))[:4]}"


# ---- The file systems


@contextlib.contextmanager
def rival(command: list[str], folder: Path, env: dict[str, str]) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    env = {name: value for name, value in (os.environ | env).items() if name != "AWS_CA_BUNDLE"}  # rclone fails with it
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_mounted(folder) or process.poll() is not None, f"mounting by {command[0]}")
        assert is_mounted(folder), f"{command[0]} does not mount"
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def file_system(name: str, sandbox: Sandbox, store: Server, folder: Path) -> Iterator[Path]:
    env = store.env()
    if name == "millrace":
        with mounted(sandbox, "s3://b", folder, "--writable", env=env):
            yield folder
    elif name == "s3fs":
        options = f"url={env['AWS_ENDPOINT_URL']},use_path_request_style,endpoint=us-east-1"
        with rival(["s3fs", "b", str(folder), "-f", "-o", options], folder, env):
            yield folder
    else:
        where = ["--s3-provider=Other", f"--s3-endpoint={env['AWS_ENDPOINT_URL']}", "--s3-env-auth"]
        cache = ["--vfs-cache-mode=writes", "--config=/dev/null", f"--cache-dir={folder.parent / 'rclone'}"]
        with rival(["rclone", "mount", ":s3:b", str(folder), "--s3-force-path-style", *where, *cache], folder, env):
            yield folder


def is_alive(folder: Path) -> bool:
    """False if the process of a mount has ended."""
    with contextlib.suppress(OSError):
        return bool(os.listdir(folder))
    return False


def table(results: dict[str, dict[str, str]], ways: list[Way]) -> str:
    """Markdown: a line for each group, and one for each way that does not work everywhere."""
    names = list(results)
    lines = [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for group, what in (
        ("copy", "copying"),
        ("make", "making and changing"),
        ("work", "a day's work"),
        ("link", "symbolic links"),
        ("library", "libraries"),
    ):
        members = [way for way in ways if way.group == group]
        counts = [sum(results[name][way.name] == "" for way in members) for name in names]
        lines.append(f"| {what}: {len(members)} ways | {' | '.join(map(str, counts))} |")
    for way in ways:
        if any(results[name][way.name] for name in names):
            marks = ["no" if results[name][way.name] else "yes" for name in names]
            lines.append(f"| {way.name} | {' | '.join(marks)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="some of millrace, s3fs and rclone [all that are installed]")
    parser.add_argument("--way", default="*", help="only the ways with such a name")
    parser.add_argument("--group", choices=GROUPS, help="only the ways of this group")
    options = parser.parse_args()
    systems = options.only or ["millrace", *(name for name in ("s3fs", "rclone") if shutil.which(name))]
    ways = [way for way in WAYS if fnmatch.fnmatch(way.name, options.way) and options.group in (None, way.group)]
    for way in ways:
        if lacks := missing(way):
            print(f"left out: {way.name}, for lack of {', '.join(lacks)}", file=sys.stderr)
    ways = [way for way in ways if not missing(way)]
    results: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="everyday-") as name:
        root = Path(name)
        (root / "home").mkdir()
        sandbox = Sandbox(root / "home")
        bench = Bench(root / "bench")
        for system in systems:
            results[system] = {}
            while rest := [
                way for way in ways if way.name not in results[system]
            ]:  # again, after one that has ended it
                with (
                    devstore(sandbox, "mem:", "--bucket", "b") as store,
                    file_system(system, sandbox, store, root / f"mnt-{system}") as folder,
                ):
                    for number, way in enumerate(rest):
                        began = time.monotonic()
                        results[system][way.name] = failed = bench.compare(way, folder / f"way{number}")
                        took = time.monotonic() - began
                        print(f"{system}: {way.name}: {failed or 'works'} ({took:.1f} s)", file=sys.stderr)
                        if not is_alive(folder):
                            break
    print(table(results, ways))


if __name__ == "__main__":
    main()
