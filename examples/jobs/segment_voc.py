"""Segmentation in the layout of VOC: masks in a folder beside the images, and the official lists of keys.

python examples/jobs/segment_voc.py s3://bucket/VOC2012
"""

import sys

import millrace
import torch

root = sys.argv[1]
voc = millrace.Dataset(root, join={"image": "JPEGImages/{}.jpg", "mask": "SegmentationClass/{}.png"})


def keys(name: str) -> list[str]:
    with millrace.open(f"{root}/ImageSets/Segmentation/{name}.txt", "r") as file:
        return file.read().split()


train, valid = voc.where(keys=keys("train")), voc.where(keys=keys("val"))
fields = {
    "image": millrace.Image("image"),
    "mask": millrace.Image("mask", like="image", interpolation="nearest"),  # uint8 [B, H, W]; 255 is the border
}
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, padding=2), torch.nn.ReLU(), torch.nn.Conv2d(16, 21, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = torch.nn.CrossEntropyLoss(ignore_index=255)
loader = millrace.Loader(train, batch_size=8, size=32, augment=True, fields=fields, epochs=2, last="drop", seed=1)
for _ in range(2):
    for batch in loader:
        loss = criterion(model(batch["image"]), batch["mask"].long())
        optimizer.zero_grad(), loss.backward(), optimizer.step()
right = total = 0
for batch in millrace.Loader(valid, batch_size=8, size=32, fields=fields, shuffle=False, epochs=1):
    counts = batch["mask"] != 255
    right += int(((model(batch["image"]).argmax(1) == batch["mask"]) & counts).sum())
    total += int(counts.sum())
print(f"{100 * right / total:.1f} % of the pixels of {len(valid)} images are right")
