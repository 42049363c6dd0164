"""Tests device= of a Loader for JAX: arrays on one device, global arrays over a mesh of eight, of one process and of
two."""

from __future__ import annotations

import gc
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import millrace
import millrace.jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from support import HEIGHT, WIDTH, Samples

NORMALISED: dict[str, Any] = {"normalize": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}


def loader_of(samples: Samples, **options: Any) -> millrace.Loader:
    return millrace.Loader(
        samples.uri, **{"batch_size": 8, "size": (HEIGHT, WIDTH), "epochs": 1, "seed": 2, "last": "pad", **options}
    )


def over_all() -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))


def check_equal(got: Any, wanted: Any) -> None:
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        if not isinstance(value, np.ndarray):
            assert got[name] == value
            continue
        assert isinstance(got[name], jax.Array) and got[name].shape == value.shape
        assert got[name].dtype == (np.int32 if value.dtype == np.int64 else value.dtype), name
        assert np.allclose(
            np.asarray(got[name]), value, rtol=0, atol=1e-6 / 0.224 if value.dtype == np.float32 else 0
        ), name


@pytest.mark.parametrize(
    "options",
    [{}, NORMALISED, {**NORMALISED, "image": millrace.Image(layout="nchw"), "last": "drop"}],
    ids=["u8", "f32", "f32-nchw"],
)
def test_arrays_of_one_device(tar: Samples, options: dict[str, Any]) -> None:
    plain = loader_of(tar, output="numpy", **options)
    for device in ("jax", jax.devices()[3]):
        loader = loader_of(tar, device=device, **options)
        assert loader.shapes() == plain.shapes()
        plain.reset()
        wanted_device = jax.devices()[0] if device == "jax" else device
        for wanted, batch in zip(plain, loader, strict=True):
            check_equal(batch, wanted)
            assert batch["image"].devices() == batch["label"].devices() == {wanted_device}
            assert loader.state_dict() == plain.state_dict()
        rehearsed = list(loader.rehearse())
        assert len(rehearsed) == 1 and not np.asarray(rehearsed[0]["image"]).any()
        loader.close()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "options", [{}, {"batch_transform": dict}, {"pad": {"image": 0.3}}], ids=["", "function", "pad"]
)
def test_floats_of_16_bits(tar: Samples, name: str, options: dict[str, Any]) -> None:
    """They are rounded as JAX rounds those of float32; on the host, they have the type of ml_dtypes."""
    halves = {**NORMALISED, "image": millrace.Image(dtype=name)}
    for device in ("jax", over_all()):
        with loader_of(tar, device=device, **halves, **options) as loader:
            assert loader.shapes()[0]["image"].dtype == name if not options.get("batch_transform") else True
            for wanted, batch in zip(loader_of(tar, device=device, **NORMALISED, **options), loader, strict=True):
                assert batch["image"].dtype == jnp.dtype(name) and batch["image"].sharding == wanted["image"].sharding
                assert np.array_equal(np.asarray(batch["image"]), np.asarray(wanted["image"].astype(name)))
    plain = loader_of(tar, output="numpy", **NORMALISED)
    for wanted, batch in zip(plain, loader_of(tar, output="numpy", **halves), strict=True):
        assert batch["image"].dtype == jnp.dtype(name)
        assert np.array_equal(batch["image"], wanted["image"].astype(jnp.dtype(name)))
    assert "<img" in millrace.ContactSheet(batch).html


def test_global_arrays(tar: Samples) -> None:
    sharding = over_all()
    with loader_of(tar, device=sharding, **NORMALISED) as loader:
        for wanted, batch in zip(loader_of(tar, output="numpy", **NORMALISED), loader, strict=True):
            check_equal(batch, wanted)
            for name in ("image", "label", "valid", "sample"):
                assert batch[name].sharding.is_equivalent_to(sharding, batch[name].ndim)
            assert {shard.data.shape for shard in batch["image"].addressable_shards} == {(1, HEIGHT, WIDTH, 3)}


def test_a_step_is_compiled_once(tar: Samples) -> None:
    traces = []

    @jax.jit
    def step(image: Any, label: Any, valid: Any) -> Any:
        traces.append(image.shape)
        return jnp.sum(jnp.mean(image, (1, 2, 3)) * valid) + jnp.sum(label)

    with loader_of(tar, device=over_all(), **NORMALISED) as loader:
        (rehearsed,) = loader.rehearse()
        step(rehearsed["image"], rehearsed["label"], rehearsed["valid"])
        for batch in loader:
            step(batch["image"], batch["label"], batch["valid"])
    assert len(traces) == 1, "the shapes are those of rehearse(), also in the last batch"


def test_memory_is_not_used_again_below_an_array(tar: Samples) -> None:
    # On a CPU, an array may be a view of the slot.
    with loader_of(tar, device="jax", epochs=20) as loader:
        kept = [(batch["image"], np.array(batch["image"])) for _ in range(20) for batch in loader]
    gc.collect()
    assert len(kept) == 140 and all(np.array_equal(array, copy) for array, copy in kept)


def test_texts_stay_and_views_go_through_dlpack(tar: Samples) -> None:
    fields = {"image": millrace.Image("png"), "caption": millrace.Text("txt"), "label": millrace.Label("cls")}
    with loader_of(tar, fields=fields, device="jax") as loader, loader_of(tar, fields=fields, output="numpy") as plain:
        for wanted, batch in zip(plain, loader, strict=True):
            assert batch["caption"] == wanted["caption"] and isinstance(batch["image"], jax.Array)
            view = jax.dlpack.from_dlpack(wanted["image"])
            assert np.array_equal(view, batch["image"])


def test_mistakes_are_named(tar: Samples) -> None:
    with (
        loader_of(tar, device=over_all(), batch_size=5) as loader,
        pytest.raises(millrace.InvalidArgumentError, match="choose another batch_size"),
    ):
        next(iter(loader))
    with pytest.raises(millrace.InvalidArgumentError, match="leave output out"):
        loader_of(tar, device="jax", output="torch")


_PROCESS = """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import jax.numpy as jnp, millrace, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
loader = millrace.Loader(sys.argv[3], batch_size=4, size=(24, 32), seed=2, epochs=1, device=sharding, normalize=(0.5, 0.25),
                         rank=jax.process_index(), world=jax.process_count())
total = jax.jit(lambda image, label, valid: (jnp.sum(image), jnp.sum(jnp.where(valid, label, 0)), jnp.sum(valid)))
sums = np.zeros(3)
for batch in loader:
    assert batch["image"].shape == (8, 24, 32, 3) and len(batch["key"]) == 4
    sums += [float(value) for value in total(batch["image"], batch["label"], batch["valid"])]
print("sums", *sums)
jax.distributed.shutdown()
"""


def test_two_processes(tar: Samples) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    commands = [[sys.executable, "-c", _PROCESS, address, str(rank), tar.uri] for rank in range(2)]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    said = []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            said.append(
                [float(word) for line in out.splitlines() if line.startswith("sums") for word in line.split()[1:]]
            )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert said[0] == said[1], "all processes see the global arrays"
    pixels = sum(float(((image / 255 - 0.5) / 0.25).sum()) for image in tar.pixels.values())
    assert (
        said[0][1:] == [sum(tar.labels.values()), len(tar)]
        and abs(said[0][0] - pixels) < 1e-4 * 50 * HEIGHT * WIDTH * 3
    )


COMPILES = """
import os, jax, jax.numpy as jnp
counts = {}
jax.monitoring.register_event_listener(lambda event, **_: counts.update({event: counts.get(event, 0) + 1}))
jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T)(jnp.ones((64, 64))).block_until_ready()
if os.environ["MORE"] == "1":
    jax.jit(lambda x: jnp.tan(x) + 3)(jnp.ones((8,))).block_until_ready()
print(*(counts.get(f"/jax/compilation_cache/cache_{what}", 0) for what in ("hits", "misses")), flush=True)
"""


def test_a_bounded_cache_of_another_host(millrace_bin: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Tests `millrace compile-cache`: the second host compiles nothing again, and can still store what is new."""
    variables = {
        "JAX_COMPILATION_CACHE_MAX_SIZE": "100000000",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    found = []
    for host, more in (("one", "0"), ("two", "1"), ("three", "1")):
        command = [millrace_bin, "compile-cache", tmp_path / "store", "--dir", tmp_path / host]
        done = subprocess.run(
            [*command, "--", sys.executable, "-c", COMPILES],
            env=os.environ | variables | {"MORE": more, "MILLRACE_CACHE": str(tmp_path / "cache")},
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
        )
        found.append([int(word) for word in done.stdout.split()])
        (tmp_path / host).rename(tmp_path / f"{host}-is-gone")
    one, two, three = found
    assert one[0] == 0 and one[1] > 0
    assert two[0] >= one[1] and two[1] > 0  # all of the first, and what only it has compiled
    assert three == [two[0] + two[1], 0]
