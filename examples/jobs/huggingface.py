"""Hugging Face's Trainer: training with exact resume, and an evaluation that counts each sample once.

python examples/jobs/huggingface.py s3://bucket/train s3://bucket/val runs/1
"""

import sys

import millrace
import millrace.huggingface
import numpy
import torch
import transformers

train, valid, runs = sys.argv[1:4]
fields = {"pixel_values": millrace.Image(size=32), "labels": millrace.Label()}
classes = millrace.Dataset(train)
options = {"batch_size": 8, "normalize": "imagenet", "fields": fields}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.Linear(392, len(classes.classes))
        )

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


trainer = millrace.huggingface.Trainer(
    model=Model(),
    args=transformers.TrainingArguments(
        runs, per_device_train_batch_size=8, num_train_epochs=2, save_steps=5, report_to=[]
    ),
    train_dataset=millrace.Loader(classes, augment=True, last="drop", seed=1, **options),
    eval_dataset=millrace.Loader(millrace.Dataset(valid, classes=classes), shuffle=False, **options),
    compute_metrics=lambda p: {
        "n": len(p.label_ids),
        "right": float(numpy.mean(p.predictions.argmax(1) == p.label_ids)),
    },
)
trainer.train(resume_from_checkpoint=transformers.trainer_utils.get_last_checkpoint(runs))
print(trainer.evaluate())
