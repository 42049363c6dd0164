"""Pairs of images and captions in WebDataset shards, mixed 3 to 1, with exact resume in another world.

python examples/jobs/image_text.py s3://bucket/web s3://bucket/clean
"""

import sys

import millrace
import torch

web, clean = (millrace.Dataset(uri) for uri in sys.argv[1:3])
mix = millrace.Mix({"web": web, "clean": clean}, weights={"web": 3, "clean": 1}, epoch_samples=64)
options = {
    "fields": {"image": millrace.Image("jpg"), "caption": millrace.Text("txt")},
    "size": 32,
    "augment": True,
    "normalize": "imagenet",
    "seed": 1,
    "epochs": 1,
}
images = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.LazyLinear(16))
texts = torch.nn.EmbeddingBag(256, 16)


def embed(captions: list[str]) -> torch.Tensor:
    return torch.stack(
        [texts(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()[None])[0] for text in captions]
    )


seen, state = [], None
for world in (2, 1):  # half of the epoch on two ranks, the rest on one
    for rank in range(world):
        with millrace.Loader(mix, batch_size=8, rank=rank, world=world, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for step, batch in enumerate(loader, start=1):
                loss = torch.nn.functional.cross_entropy(
                    images(batch["image"]) @ embed(batch["caption"]).T, torch.arange(8)
                )
                loss.backward()
                seen += [(int(part), key) for part, key in zip(batch["part"], batch["key"])]
                if world == 2 and step == 2:
                    break
            last = loader.state_dict()
    state = last
print(f"{len(seen)} samples, {sum(part == 0 for part, _ in seen)} of web; the last loss is {loss.item():.3f}")
