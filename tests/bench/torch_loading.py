#!/usr/bin/env python3
"""PyTorch's DataLoader on photographs in class folders: RandomResizedCrop(224), flip, normalise.

  torch_loading.py --photos FOLDER --how pillow|io --workers N --batch N --seconds S
  torch_loading.py --make FOLDER      makes photographs to measure with

pillow: decoded by Pillow, torchvision's first transforms. io: decoded by torchvision.io, its second
transforms (v2) on uint8. Prints {"images_per_s": ..., "versions": ...} as JSON; status 3 where a
library lacks what is asked for.
"""
import argparse
import json
import pathlib
import sys
import time

LACKS = 3
SIDE = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def lacks(what):
    print(what, file=sys.stderr)
    sys.exit(LACKS)


def make_photographs(folder, count=500, classes=10):
    """500 x 375 pixels of smooth shapes with some grain, quality 90: about 70 kB each."""
    import numpy as np
    from PIL import Image
    random = np.random.default_rng(1)
    for i in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.BICUBIC), np.float32)
        grain = random.normal(0, 9, smooth.shape)
        path = folder / f'class{i % classes}' / f'{i}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(path, quality=90)


class Photographs:
    """Items are float tensors [3, 224, 224] with the number of their class."""

    def __init__(self, folder, how):
        self.files = sorted(path for path in pathlib.Path(folder).glob('*/*')
                            if path.suffix.lower() in ('.jpg', '.jpeg'))
        names = sorted({path.parent.name for path in self.files})
        self.labels = [names.index(path.parent.name) for path in self.files]
        self.how = how
        self.prepare = self.with_pillow() if how == 'pillow' else self.with_io()

    @staticmethod
    def with_pillow():
        from torchvision import transforms as v1
        return v1.Compose([v1.RandomResizedCrop(SIDE), v1.RandomHorizontalFlip(), v1.ToTensor(),
                           v1.Normalize(MEAN, DEVIATION)])

    @staticmethod
    def with_io():
        import torch
        try:
            from torchvision.transforms import v2
        except ImportError:
            lacks('this torchvision has no transforms.v2')
        return v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(),
                           v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        if self.how == 'pillow':
            from PIL import Image
            with Image.open(self.files[i]) as file:
                image = file.convert('RGB')
        else:
            from torchvision import io
            image = io.read_image(str(self.files[i]), io.ImageReadMode.RGB)
        return self.prepare(image), self.labels[i]


def measure(asked):
    import torch
    import torchvision
    torch.set_num_threads(1)  # of each process: the workers share the cores
    data = Photographs(asked.photos, asked.how)
    if len(data) < asked.batch:
        sys.exit(
            f'{asked.photos}: holds {len(data)} JPEGs in class folders; a batch has {asked.batch}'
        )
    loader = torch.utils.data.DataLoader(data, batch_size=asked.batch, shuffle=True, drop_last=True,
                                         num_workers=asked.workers, persistent_workers=True)
    for _ in loader:  # the workers start, and files come into the system's cache
        pass
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < asked.seconds:  # whole epochs, with their beginning and end
        for images, _ in loader:
            assert images.dtype == torch.float32
            done += len(images)
    seconds = time.perf_counter() - begin
    return {'images_per_s': done / seconds, 'images': len(data),
            'versions': f'PyTorch {torch.__version__}, torchvision {torchvision.__version__}'}


def main():
    options = argparse.ArgumentParser()
    options.add_argument('--make', type=pathlib.Path)
    options.add_argument('--photos', type=pathlib.Path)
    options.add_argument('--how', choices=['pillow', 'io'], default='pillow')
    options.add_argument('--workers', type=int, default=2)
    options.add_argument('--batch', type=int, default=64)
    options.add_argument('--seconds', type=float, default=4)
    asked = options.parse_args()
    try:
        if asked.make:
            return make_photographs(asked.make)
        print(json.dumps(measure(asked)))
    except ImportError as missing:
        lacks(f'{sys.executable}: {missing}')


if __name__ == '__main__':
    main()
