#!/usr/bin/env python3
"""PyTorch's records of the losses other than plain cross entropy, for the tests ("[records]").

    task_records.py ../shared/reference/resnet20.h5 build/reference/tasks.h5

It needs torch and h5py. The tests read ../shared/reference/tasks.h5, or the file above.

ResNet-20 with its record's first weights takes 20 steps of SGD with rate 0.01, momentum 0.9 and
decay 1e-4 on its record's images, in float32 and float64. Of each kind of loss there are what was
wanted, the losses, and the states before and after some steps.
"""

import os
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STEPS, ROWS, OUTPUTS, KEPT = 20, 32, 10, (10,)
WEIGHTS = torch.tensor([0.5, 3, 1, 1, 0.25, 2, 1, 4, 1, 0.125], dtype=torch.float64)


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.c1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.c2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.stride, self.added = stride, (outer - inner) // 2

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(x, (0, 0, 0, 0, self.added, self.added)))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        sizes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)]
        self.body = nn.Sequential(*[Block(*size) for size in sizes + [(64, 64, 1)] * 2])
        self.fc = nn.Linear(64, OUTPUTS)

    def forward(self, x):
        return self.fc(self.body(F.relu(self.b(self.c(x)))).mean((2, 3)))


def known_mean(losses, wanted):
    """By the number of all outputs, known or not."""
    return torch.where(wanted.isnan(), 0, losses).sum() / losses.numel()


def weighted(z, y):  # by the number of rows, as with shares of classes
    weights = WEIGHTS.to(z.dtype)
    return F.cross_entropy(z, y.long(), weights, reduction="sum", label_smoothing=0.1) / len(z)


def mixed(z, y):  # y: two classes and the share of the first
    shares = F.one_hot(y[:, 0].long(), OUTPUTS) * y[:, 2:]
    return F.cross_entropy(z, shares + F.one_hot(y[:, 1].long(), OUTPUTS) * (1 - y[:, 2:]))


def labels(z, y):
    losses = F.binary_cross_entropy_with_logits(
        z, y.nan_to_num(), pos_weight=WEIGHTS.to(z.dtype), reduction="none"
    )
    return known_mean(losses, y)


def squares(z, y):
    return known_mean(F.mse_loss(z, y.nan_to_num(), reduction="none"), y)


def huber(z, y):
    return known_mean(F.huber_loss(z, y.nan_to_num(), reduction="none", delta=0.75), y)


def wanted_of(kind, classes, random):
    if kind is weighted:
        return classes
    if kind is mixed:
        shares = random.beta(0.5, 0.5, classes.shape).astype("f4")
        return np.stack([classes, np.roll(classes, -1, 1), shares], -1)
    applies = (classes[..., None] + np.arange(OUTPUTS)) % OUTPUTS
    wanted = (applies < 3).astype("f4") if kind is labels else applies.astype("f4") / 3 - 1.5
    wanted[random.random(wanted.shape) < 0.15] = np.nan
    return wanted


def put(group, tensors):
    for name, tensor in tensors.items():
        if "num_batches" not in name:
            values = tensor.detach().numpy()
            group.create_dataset(name.replace(".", "/"), data=values, compression="gzip")


def run(kind, x, wanted, first, dtype, group=None):
    net = ResNet20()
    state = {name: torch.tensor(np.float32(first[name.replace(".", "/")]))
             for name in net.state_dict() if "num_batches" not in name}
    net.load_state_dict(state, strict=False)
    net = net.to(dtype).train()
    rule = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(STEPS):
        if group is not None and step in KEPT:
            put(group.create_group(f"before/{step}/weights"), net.state_dict())
            put(group.create_group(f"before/{step}/momentum"),
                {name: rule.state[p]["momentum_buffer"] for name, p in net.named_parameters()})
        rule.zero_grad()
        loss = kind(net(torch.tensor(x[step]).to(dtype)), torch.tensor(wanted[step]).to(dtype))
        loss.backward()
        if group is not None and step == 0:
            put(group.create_group("gradients"), {n: p.grad for n, p in net.named_parameters()})
        rule.step()
        losses.append(loss.item())
        if group is not None and step in KEPT:
            put(group.create_group(f"after/{step}"), net.state_dict())
    return np.array(losses)


def main(record, out):
    random = np.random.default_rng(5)
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    with h5py.File(record) as f, h5py.File(out, "w") as to:
        images, classes = f["batches/x"][:, :ROWS], f["batches/y"][:, :ROWS].astype("f4")
        to.attrs["torch"] = str(torch.__version__)
        to["weights"] = WEIGHTS.numpy()
        for kind in weighted, mixed, labels, squares, huber:
            group = to.create_group(kind.__name__)
            group["wanted"] = wanted = wanted_of(kind, classes, random)
            x = images
            if kind is mixed:
                share = wanted[..., 2].reshape(STEPS, ROWS, 1, 1, 1)
                x = (share * images + (1 - share) * np.roll(images, -1, 1)).astype("f4")
                group.create_dataset("x", data=x, compression="gzip")
            group["loss"] = run(kind, x, wanted, f["init"], torch.float32, group)
            group["loss64"] = run(kind, x, wanted, f["init"], torch.float64)
            off = np.abs(group["loss"][()] - group["loss64"][()])
            print(f"{kind.__name__}: loss {group['loss'][0]:.4f} to {group['loss'][-1]:.4f}; "
                  f"float32 is off by up to {off.max():.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
