"""Lightning: a DataModule of two folders, where validation lacks a class, and a resume in the middle of an epoch.

python examples/jobs/lightning_fit.py s3://bucket/train s3://bucket/val runs/1
"""

import os
import sys

import lightning.pytorch
import millrace
import millrace.lightning
import torch

folder, valid, runs = sys.argv[1:4]
train = millrace.Dataset(folder)


class Model(lightning.pytorch.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.Linear(392, len(train.classes))
        )

    def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch["image"]), batch["label"])

    def validation_step(self, batch: dict[str, torch.Tensor]) -> None:
        right = (self.layers(batch["image"]).argmax(1) == batch["label"]).float().mean()
        self.log("right", right, batch_size=len(batch["label"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


usual = {"batch_size": 8, "size": 32, "augment": True, "normalize": "imagenet", "seed": 1, "last": "drop"}
data = millrace.lightning.DataModule(train=train, val=millrace.Dataset(valid, classes=train), **usual)
save = lightning.pytorch.callbacks.ModelCheckpoint(runs, every_n_train_steps=3, save_last=True)
trainer = lightning.pytorch.Trainer(
    max_epochs=2, callbacks=[save], logger=False, enable_progress_bar=False, accelerator="cpu"
)
last = f"{runs}/last.ckpt"
trainer.fit(Model(), datamodule=data, ckpt_path=last if os.path.exists(last) else None)
print(f"{trainer.global_step} steps, {trainer.callback_metrics['right']:.3f} of the validation is right")
