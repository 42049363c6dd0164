"""A slow training explained: what the program waits for, as a table, as numbers for a dashboard, and of the torch DataLoader it had before.

python examples/jobs/slow.py s3://bucket/photos
"""

import io
import sys
import time

import millrace
import millrace.torch
import torch
from PIL import Image

photos = millrace.Dataset(sys.argv[1])


def heavy(sample: dict) -> dict:
    time.sleep(0.01)  # a transform that is too slow for the model
    return sample


with millrace.Loader(photos, batch_size=8, size=32, transform=heavy, epochs=1, seed=1) as loader:
    for _ in loader:
        pass
    print(loader.report())  # limited by transform
    print({name: round(number, 2) for name, number in loader.stats("data/").items() if number})


class Old(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return len(photos)

    def __getitem__(self, number: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(photos[number]["jpg"])).resize((32, 32))
        return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)


print(millrace.torch.benchmark(torch.utils.data.DataLoader(Old(), batch_size=8)))
