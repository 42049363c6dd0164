"""Classes in folders: a split, DistributedDataParallel, checkpoints, and exact resume after a kill, also with another number of ranks.

torchrun --nproc-per-node 2 examples/jobs/classify.py s3://bucket/photos s3://bucket/run-1
"""

import sys

import millrace
import torch
import torch.distributed as dist

data, runs = sys.argv[1:3]
dist.init_process_group("gloo")
parts = millrace.Dataset(data).split(train=0.9, valid=0.1, exact=True, stratify=True)
batch = 16 // dist.get_world_size()
loader = millrace.Loader(
    parts["train"], batch_size=batch, size=32, augment=True, normalize="imagenet", epochs=3, seed=1
)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.LazyLinear(len(parts["train"].classes))
)
net(torch.zeros(1, 3, 32, 32))  # makes the lazy layer
model, step = torch.nn.parallel.DistributedDataParallel(net), 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
checkpoints = millrace.Checkpoints(runs, keep=2, save_interval_steps=2)
latest = [checkpoints.latest()]
dist.broadcast_object_list(latest)  # what rank 0 sees
if latest[0] is not None:
    state = checkpoints.load(step := latest[0])
    net.load_state_dict(state["model"]), loader.load_state_dict(state["loader"])
    print(f"continues after step {step}", flush=True)
for _ in range(loader.epoch, 3):
    for images in loader:
        loss = torch.nn.functional.cross_entropy(model(images["image"]), images["label"])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        if checkpoints.should_save(step := step + 1):
            checkpoints.save(step, {"model": net.state_dict(), "loader": loader.state_dict()})
valid = millrace.Loader(
    parts["valid"], batch_size=32, size=32, normalize="imagenet", shuffle=False, epochs=1, rank=0, world=1
)
right = sum(int((net(images["image"]).argmax(1) == images["label"]).sum()) for images in valid)
print(f"done after {step} steps: {right} of {len(parts['valid'])} are right", flush=True)
dist.destroy_process_group()
