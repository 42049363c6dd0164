"""Video or audio files as they are: their bytes come by Bytes, and torchcodec decodes them in `transform`, beside the training.

python examples/video.py s3://bucket/clips --field mp4 --frames 8
python examples/video.py s3://bucket/speech --field wav --audio
"""

from __future__ import annotations

import argparse
from typing import Any

import millrace
import torch


def frames_of(sample: dict[str, Any], field: str, count: int, size: int) -> dict[str, Any]:
    """Returns ``count`` frames, evenly spread, as uint8 [frames, 3, size, size]."""
    from torchcodec.decoders import VideoDecoder  # type: ignore[import-not-found,unused-ignore]

    decoder = VideoDecoder(sample.pop(field), seek_mode="approximate")
    last = max(decoder.metadata.num_frames - 1, 0)
    frames = decoder.get_frames_at(indices=[last * number // max(count - 1, 1) for number in range(count)]).data
    resized = torch.nn.functional.interpolate(frames.float(), (size, size), mode="bilinear", antialias=True)
    sample["frames"] = resized.round().to(torch.uint8).numpy()
    return sample


def wave_of(sample: dict[str, Any], field: str, seconds: float, rate: int) -> dict[str, Any]:
    """The first seconds in mono, as float32 [samples], with silence behind a short one."""
    from torchcodec.decoders import AudioDecoder  # type: ignore[import-not-found,unused-ignore]

    samples = AudioDecoder(sample.pop(field), sample_rate=rate, num_channels=1).get_all_samples().data[0]
    wave = torch.zeros(int(seconds * rate))
    wave[: len(samples)] = samples[: len(wave)]
    sample["wave"] = wave.numpy()
    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="files in class folders, or shards")
    parser.add_argument("--field", default="mp4", help="the field of the file: mp4, mkv, wav, flac ... [mp4]")
    parser.add_argument("--audio", action="store_true", help="it is audio")
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()

    def decode(sample: dict[str, Any]) -> dict[str, Any]:
        if options.audio:
            return wave_of(sample, options.field, options.seconds, 16_000)
        return frames_of(sample, options.field, options.frames, 112)

    dataset = millrace.Dataset(options.data)
    fields: dict[str, Any] = {"file": millrace.Bytes(options.field), "label": millrace.Label()}
    loader = millrace.Loader(
        dataset,
        batch_size=options.batch,
        fields=fields,
        # torchcodec decodes without the GIL
        transform=millrace.Map(lambda sample: decode({options.field: sample.pop("file"), **sample}), threads=2),
        epochs=1,
        seed=1,
    )
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(len(dataset.classes)))
    for step, batch in enumerate(loader):
        data = batch["wave"] if options.audio else batch["frames"].float() / 255
        loss = torch.nn.functional.cross_entropy(model(data), batch["label"])
        print(f"step {step} {tuple(data.shape)} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
