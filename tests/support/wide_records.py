#!/usr/bin/env python3
"""PyTorch's record of ResNets on 12 channels of 16 bits and 19 labels, for the test ("[records]").

    wide_records.py build/reference/wide-resnet50.h5 resnet50
    wide_records.py build/reference/wide-resnet20.h5 resnet20

It needs torch and h5py. Of 20 steps of SGD with rate 0.01, momentum 0.9 and decay 1e-4 there are
the images and labels, and the losses in float32 and float64. For a single step of fewer rows from
the state before step 0, and from that before step 10, which is recorded, there are the next state
and float64's gradients: of large tensors each 16th number. The first weights are not in it: both
sides make them by a formula. About 300 MB, of ResNet-20 20 MB.

A ReLU whose input is about 0 may be on in one arithmetic and off in another. That is another
function, not an error, so a single step has some batches for which PyTorch's float32 agrees with
its float64, of which the test needs one.
"""

import copy
import pathlib
import sys

import h5py
import numpy as np
import torch
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import torch_networks  # noqa: E402
from task_records import known_mean  # noqa: E402

STEPS, ROWS, FEW, BANDS, LABELS, SIDE, KEPT, EACH = 20, 16, 4, 12, 19, 64, (0, 10), 16
MEANS = np.geomspace(150, 6000, BANDS).astype("f4")
DEVIATIONS = (MEANS / 3).astype("f4")
POSITIVE = torch.tensor(np.geomspace(0.5, 8, LABELS))
TRIES, BATCHES = 30, 3


def generated(tensor, count, scale):
    """splitmix64 of (tensor << 40) + element, upper 24 bits, in [-1, 1), times scale."""
    with np.errstate(over="ignore"):
        z = (np.uint64(tensor) << np.uint64(40)) + np.arange(count, dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(40)).astype("f4") * np.float32(2.0**-23) - np.float32(1)
    return (np.float32(scale) * unit).astype("f4")


def network(dtype, model):
    net, _, _ = torch_networks.resnet(model, BANDS, LABELS)
    modules = [m for m in net.modules() if not list(m.children()) and list(m.parameters())]
    last = {blocks.layers[-1] for blocks in net
            if isinstance(blocks, torch_networks.Block) and model == "resnet50"}  # bottlenecks'
    index = 0
    for module in modules:
        for name, parameter in module.named_parameters():
            shape = parameter.shape
            if isinstance(module, nn.Conv2d):
                values = generated(index, shape.numel(), np.sqrt(6.0 / shape[1:].numel()))
            elif isinstance(module, nn.Linear) and name == "weight":
                values = generated(index, shape.numel(), np.sqrt(1.0 / shape[1]))
            else:
                values = generated(index, shape.numel(), 0.1)
                if isinstance(module, nn.BatchNorm2d) and name == "weight":
                    values += np.float32(0.25 if module in last else 1)
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(values).reshape(shape))
            index += 1
    assert index == len(list(net.parameters()))
    return net.to(dtype).train()


def loss_of(net, images, wanted):
    dtype = next(net.parameters()).dtype
    place = lambda values: torch.from_numpy(values)[:, None, None].to(dtype)  # noqa: E731
    x = (torch.from_numpy(images.astype("f4")).to(dtype) - place(MEANS)) / place(DEVIATIONS)
    y = torch.from_numpy(wanted).to(dtype)
    losses = nn.functional.binary_cross_entropy_with_logits(
        net(x), y.nan_to_num(), pos_weight=POSITIVE.to(dtype), reduction="none")  # fmt: skip
    return known_mean(losses, y)


def images_of(seed, rows):
    random = np.random.default_rng(seed)
    values = MEANS[:, None, None] * np.exp(random.normal(0, 0.3, (rows, BANDS, SIDE, SIDE)))
    return np.clip(values, 1, 15596).astype("u2")


def gradients(net, images, wanted):
    net.zero_grad()
    loss = loss_of(net, images, wanted)
    loss.backward()
    return loss.item(), [p.grad.detach().clone() for p in net.parameters()]


def part(values):
    flat = values.detach().numpy().ravel()
    return flat if flat.size <= 65536 else flat[::EACH]


def without_flips(net, wide, k, wanted):
    """Some batches for which float32's gradients are those of float64 from this state: the images,
    the latter's loss, and its gradients."""
    wide.load_state_dict({name: value.double() if value.is_floating_point() else value
                          for name, value in net.state_dict().items()})  # fmt: skip
    found = []
    for attempt in range(TRIES):
        images = images_of(1000 * k + attempt, FEW)
        state = copy.deepcopy(net.state_dict())
        _, narrow = gradients(net, images, wanted)
        net.load_state_dict(state)  # the running statistics
        loss, exact = gradients(wide, images, wanted)
        off = max(float((a.double() - b).norm() / b.norm()) for a, b in zip(narrow, exact))
        print(f"step {k}, try {attempt}: float32's gradients are off by {off:.1e}", flush=True)
        if off < 2e-5:
            found.append((images, loss, exact))
        if len(found) == BATCHES:
            break
    assert found, "each batch flips a ReLU: more TRIES"
    return found


def record_single(group, k, net, rule, other, wanted):
    """A step from this state, which is there again afterwards."""
    found = without_flips(net, other, k, wanted)
    group["images"], group["wanted"] = (np.stack([one[0] for one in found]),
                                        np.stack([wanted] * len(found)))  # fmt: skip
    group["loss64"] = [one[1] for one in found]
    for number, (_, _, exact) in enumerate(found):
        for i, gradient in enumerate(exact):
            group[f"gradient/{number}/{i}"] = part(gradient)
    state, moments = copy.deepcopy(net.state_dict()), copy.deepcopy(rule.state_dict())
    for i, parameter in enumerate(net.parameters()):
        if k > 0:
            group[f"weights/{i}"] = parameter.detach().numpy()
            group[f"momentum/{i}"] = rule.state[parameter]["momentum_buffer"].numpy()
    gradients(net, found[0][0], wanted)
    rule.step()
    for i, parameter in enumerate(net.parameters()):
        group[f"after/{i}"] = part(parameter)
    net.load_state_dict(state)
    rule.load_state_dict(moments)


def main(out, model):
    pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    wanted = (random.random((STEPS, ROWS, LABELS)) < 0.2).astype("f4")
    wanted[random.random(wanted.shape) < 0.15] = np.nan
    images = np.stack([images_of(10 + k, ROWS) for k in range(STEPS)])
    net, other = network(torch.float32, model), network(torch.float64, model)
    rule = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    losses = np.zeros(STEPS)
    with h5py.File(out, "w") as to:
        for k in range(STEPS):
            if k in KEPT:
                record_single(to.create_group(f"step/{k}"), k, net, rule, other, wanted[k, :FEW])
            losses[k], _ = gradients(net, images[k], wanted[k])
            rule.step()
        other = network(torch.float64, model)
        rule = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        exact = np.zeros(STEPS)
        for k in range(STEPS):
            exact[k], _ = gradients(other, images[k], wanted[k])
            rule.step()
        to["images"], to["wanted"], to["loss"], to["loss64"] = images, wanted, losses, exact
        to["mean"], to["stddev"], to["positive"] = MEANS, DEVIATIONS, POSITIVE.numpy()
        to.attrs["torch"] = str(torch.__version__)
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}; float32 is off by up to "
          f"{np.abs(losses - exact).max():.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
