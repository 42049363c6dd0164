"""Options that a Loader, an image or a worker once had, or that torchvision's data sets have. The error for such a name says its place here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PLACES = {
    "channels": "image=millrace.Image(channels=)",
    "crop_scale": "image=millrace.Image(crop=(from, to))",
    "crop_ratio": "image=millrace.Image(crop=(scale, ratio))",
    "flip": "image=millrace.Image(flip=)",
    "exif_orientation": 'image=millrace.Image(orientation="exif")',
    "exact": "image=millrace.Image(exact=)",
    "dtype": "image=millrace.Image(dtype=)",
    "layout": "image=millrace.Image(layout=)",
    "mean": "normalize=(mean, std), or image=millrace.Image(mean=)",
    "std": "normalize=(mean, std), or image=millrace.Image(std=)",
    "image_field": "image=millrace.Image(field)",
    "label_field": "label=millrace.Label(field)",
    "label_kind": "label=millrace.Label(field, kind, path=)",
    "window": "shuffle=millrace.Shuffle(window=)",
    "extent": "shuffle=millrace.Shuffle(extent=)",
    "lanes": "shuffle=millrace.Shuffle(lanes=)",
    "cache_size": "cache=millrace.Cache(path, size=)",
    "pin": "cache=millrace.Cache(path, pin=)",
    "labels": "millrace.Dataset(uri, labels=)",
    "collate": "collate_fn=",
    "transform_threads": "transform=millrace.Map(function, threads=)",
    "transform_processes": "transform=millrace.Map(function, processes=)",
    "decode": "device=millrace.Transfer(device, decode=)",
    "prefetch_batches": "device=millrace.Transfer(device, ahead=)",
    "on_batch": "device=millrace.Transfer(device, on_batch=)",
    "streams": "workers=millrace.Service([...], streams=)",
    "local_streams": "workers=millrace.Service([...], local_streams=)",
    "worker_token_file": "workers=millrace.Service([...], token=)",
    "worker_tls": "workers=millrace.Service([...], tls=)",
    "worker_tls_name": "workers=millrace.Service([...], tls_name=)",
    "worker_compression": "workers=millrace.Service([...], compression=)",
}

OF_TORCH = {
    "dataset": "the data set as the first argument, or data=",
    "transforms": "image=millrace.Image(transforms=)",
}

OF_IMAGES = {
    "augment": 'crop="random", or "center"',
    "crop_scale": "crop=(from, to)",
    "crop_ratio": "crop=(scale, ratio)",
    "exif_orientation": 'orientation="exif"',
}

_OF_SAMPLES = "millrace.Loader(uri, transform=), or image=millrace.Image(transforms=) for those of torchvision"

OF_DATASETS = {
    "root": "the path or the URI as the first argument",
    "transform": _OF_SAMPLES,
    "transforms": _OF_SAMPLES,
    "target_transform": "millrace.Loader(uri, transform=)",
}

OF_WORKERS = {"cache_size": PLACES["cache_size"], "cache_tenant": "cache=millrace.Cache(path, tenant=)"}


def check(names: Iterable[str], taker: str = "millrace.Loader", places: Mapping[str, str] = PLACES | OF_TORCH) -> None:
    """Raises TypeError for the first of them that has moved."""
    for name in names:
        if name in places:
            raise TypeError(f"{taker} takes no {name}; write {places[name]}")
