"""Detection with COCO's annotations as they are: boxes follow the random crops and flips of their images.

python examples/jobs/coco_boxes.py s3://bucket/train2017 s3://bucket/annotations/instances_train2017.json
"""

import sys

import millrace
import torch

images, annotations = sys.argv[1:3]
coco = millrace.Dataset(images, labels=annotations)
fields = {
    "image": millrace.Image("jpg"),
    "boxes": millrace.Boxes("boxes", like="image", format="xywh"),
    "labels": millrace.Json("labels"),
    "image_id": millrace.Label("image_id"),
}
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, 4), torch.nn.Flatten(), torch.nn.Linear(784, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = millrace.Loader(coco, batch_size=8, size=32, augment=True, fields=fields, epochs=3, last="drop", seed=1)
seen = boxes_left = 0
for epoch in range(3):
    for batch in loader:
        boxes = [torch.as_tensor(each) for each in batch["boxes"]]
        kept = [each[:, 2] > each[:, 0] for each in boxes]  # four zeros: the crop has nothing of it
        targets = [
            {"boxes": each[keep], "labels": torch.tensor(labels, dtype=torch.int64)[keep], "image_id": number}
            for each, keep, labels, number in zip(boxes, kept, batch["labels"], batch["image_id"])
        ]  # what torchvision's detection models take
        seen, boxes_left = seen + len(targets), boxes_left + sum(len(target["boxes"]) for target in targets)
        mean = torch.stack([target["boxes"].mean(0) if len(target["boxes"]) else torch.zeros(4) for target in targets])
        loss = torch.nn.functional.l1_loss(model(batch["image"]), mean)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.3f}")
print(f"{seen} images with {boxes_left} boxes")
