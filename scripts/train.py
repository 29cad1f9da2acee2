#!/usr/bin/env python3
"""Trains the network of the accuracy study and writes its weights as safetensors, which
`convforge infer --weights` reads.

The images are Fashion-MNIST's IDX files, plain or gzip; they are enlarged to 86x86 as the study's
are, bit for bit. A part of the training images is held out, and the weights that classify it best
are kept: after each epoch that improves them the file is written anew. The test images only say at
the end how good the result is. Ctrl-C ends the training with the best weights so far.

Needs NumPy and PyTorch. A minute on a GPU, a few per epoch on a CPU.
"""

import argparse
import gzip
import json
import os
import struct
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SIDE = 86
# Images of a batch that a thread enlarges, and threads: together less than 1 GB of temporaries.
BATCH, THREADS = 256, 8
IMAGES, LABELS = 2051, 2049
# Pixels are scaled to 0..1 for the training, and the first filter by as much for the file, so that the network takes
# them as they are.
SCALE = 1.0 / 255.0
INTERRUPTED = 130


class Failure(Exception):
    """Told to the user as it is, without a traceback."""


# Images ----------------------------------------------------------------------------------------


def read_idx(path, magic, dimensions):
    """The bytes of an IDX file as an array."""
    import numpy as np

    try:
        data = Path(path).read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as why:
        raise Failure(f"{path}: {why}")
    size = 4 * (1 + dimensions)
    if len(data) < size:
        raise Failure(f"{path}: too short for an IDX file")
    found, *shape = struct.unpack_from(f">{1 + dimensions}I", data)
    if found != magic:
        raise Failure(f"{path}: expected the magic number {magic}, found {found}")
    values = np.frombuffer(data, np.uint8, offset=size)
    expected = int(np.prod(shape, dtype=object))
    if len(values) != expected:
        raise Failure(f"{path}: expected {expected} bytes of data, found {len(values)}")
    return values.reshape(shape)


def read_set(images, labels):
    """Images enlarged to 86x86, and their labels."""
    pixels, classes = read_idx(images, IMAGES, 3), read_idx(labels, LABELS, 1)
    if len(pixels) != len(classes):
        raise Failure(f"{images} has {len(pixels)} images, but {labels} has {len(classes)} labels")
    if len(pixels) == 0 or 0 in pixels.shape or classes.max() > 9:
        raise Failure(f"{images} and {labels} are no images of ten classes")
    return enlarge(pixels), classes


def taps(old, new):
    """For each pixel of an enlarged row the first of its two source pixels, counted from one pixel
    outside the image, and the weights of both."""
    import numpy as np

    at = (np.arange(new) + 0.5) * (old / new) - 0.5
    floor = np.floor(at)
    far = at - floor
    return floor.astype(int) + 1, 1.0 - far, far


def enlarge(images):
    """Bilinear, with half-pixel centres and zeros outside. The order of the sums is part of the
    result: any other one changes pixels."""
    import numpy as np

    result = np.empty((len(images), SIDE, SIDE), np.uint8)
    y, *down = taps(images.shape[1], SIDE)
    x, *across = taps(images.shape[2], SIDE)

    def part(start):
        source = np.pad(images[start : start + BATCH], [(0, 0), (1, 1), (1, 1)]).astype(float)
        total = None
        for row, weight in enumerate(down):
            rows = source[:, y + row] * weight[:, None]
            for column, weight in enumerate(across):
                term = rows[:, :, x + column] * weight
                total = term if total is None else total + term
        result[start : start + BATCH] = total.astype(np.uint8)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(part, range(0, len(images), BATCH)))
    return result


# Weights ---------------------------------------------------------------------------------------


def safetensors(tensors):
    """The bytes of a file with these f32 arrays by name: the length of a JSON object, the object,
    which says where each array lies, and the arrays, little-endian."""
    header, data = {}, b""
    for name, array in tensors.items():
        begin = len(data)
        data += array.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text + data


def write_whole(path, data):
    """Writes the file so that it is whole at any time."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as why:
        raise Failure(f"{path}: {why}")


# Training --------------------------------------------------------------------------------------


def network(torch):
    nn = torch.nn
    layers = {
        "conv1": nn.Conv2d(1, 4, 7, bias=False),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(4, 16, 7, bias=False),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(4, ceil_mode=True),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(16 * 9 * 9, 32),
        "relu3": nn.ReLU(),
        "fc2": nn.Linear(32, 10),
    }
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def accuracy(torch, model, pixels, labels, scale=1.0):
    """The share of images classified right."""
    model.eval()
    with torch.no_grad():
        right = sum(
            (model(x[:, None].float() * scale).argmax(1) == y).sum().item()
            for x, y in zip(pixels.split(1000), labels.split(1000))
        )
    return right / len(labels)


def deterministic_torch(seed):
    """PyTorch, so that equal seeds give equal weights."""
    # Read by cuBLAS when it is loaded; without it its sums may come in any order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        import torch
    except ImportError as why:
        raise Failure(f"training needs PyTorch: {why}")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    return torch


def load(torch, device, images, labels):
    """A set, enlarged, on the device."""
    pixels, classes = [torch.from_numpy(array.copy()).to(device) for array in read_set(images, labels)]
    return pixels, classes.long()


class Training:
    """The network, and what trains it on the images with these numbers."""

    def __init__(self, torch, args, pixels, labels, used):
        self.torch, self.batch = torch, args.batch
        self.pixels, self.labels, self.used = pixels, labels, used
        self.model = network(torch).to(pixels.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=args.weight_decay)
        steps = -(-len(used) // args.batch)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=args.rate, epochs=args.epochs, steps_per_epoch=steps
        )
        self.loss_of = torch.nn.CrossEntropyLoss()
        self.shuffle = torch.Generator().manual_seed(args.seed)

    def epoch(self):
        """Trains once on every image; the mean loss."""
        self.model.train()
        total = self.torch.zeros((), device=self.pixels.device)
        order = self.torch.randperm(len(self.used), generator=self.shuffle)
        for chosen in self.used[order.to(self.pixels.device)].split(self.batch):
            self.optimizer.zero_grad()
            images = self.pixels[chosen][:, None].float() * SCALE
            loss = self.loss_of(self.model(images), self.labels[chosen])
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach() * len(chosen)
        return total.item() / len(self.used)

    def weights(self):
        """Those of now, for pixels as they are."""
        state = self.model.state_dict()
        state = {name: value.detach().cpu().clone() for name, value in state.items()}
        state["conv1.weight"] *= SCALE
        return state


def train(args):
    torch = deterministic_torch(args.seed)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise Failure(f"{args.out}: {why.strerror}")
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")

    began = time.monotonic()
    pixels, labels = load(torch, device, args.images, args.labels)
    test = load(torch, device, args.test_images, args.test_labels)
    held_out = len(labels) // 12
    if held_out == 0:
        raise Failure(f"{args.images} has {len(labels)} images, too few to hold some out")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(args.seed))
    held, used = order[:held_out].to(device), order[held_out:].to(device)
    print(
        f"{len(used)} images to train on, {held_out} held out, {len(test[1])} to test with, "
        f"enlarged to {SIDE}x{SIDE}; {device}; {time.monotonic() - began:.1f} s",
        flush=True,
    )
    training = Training(torch, args, pixels, labels, used)
    state, interrupted = best_weights(args, training, held, began)
    if state is None:
        raise Failure("interrupted before the first epoch was over; nothing was written")
    training.model.load_state_dict(state)
    print(
        f"{args.out}: accuracy {accuracy(torch, training.model, *test):.4f} on the {len(test[1])} test images"
        f"{', interrupted' if interrupted else ''}"
    )
    return INTERRUPTED if interrupted else 0


def best_weights(args, training, held, began):
    """Trains, and writes the weights after each epoch that classifies the held out images better than all before.
    The best ones, none before the first epoch is over; and whether Ctrl-C ended it."""
    pixels, labels = training.pixels[held], training.labels[held]
    best, state = -1.0, None
    try:
        for epoch in range(1, args.epochs + 1):
            loss = training.epoch()
            found = accuracy(training.torch, training.model, pixels, labels, SCALE)
            if kept := found > best:
                best, state = found, training.weights()
                arrays = {name: value.numpy() for name, value in state.items()}
                write_whole(args.out, safetensors(arrays))
            print(
                f"epoch {epoch:3} of {args.epochs}: loss {loss:.4f}, held out "
                f"{found:.4f}{' *' if kept else '  '} {time.monotonic() - began:6.1f} s",
                flush=True,
            )
    except KeyboardInterrupt:
        return state, True
    return state, False


def at_least_one(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, what in (
        ("images", "training images, IDX"),
        ("labels", "their labels, IDX"),
        ("test-images", "test images, IDX"),
        ("test-labels", "their labels, IDX"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="FILE", help=what)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the weights, safetensors"
    )
    parser.add_argument("--epochs", type=at_least_one, default=20, help="passes over the images (20)")
    parser.add_argument("--batch", type=at_least_one, default=256, help="images per step (256)")
    parser.add_argument("--rate", type=float, default=4e-3, help="highest learning rate (0.004)")
    parser.add_argument("--weight-decay", type=float, default=1e-2, help="of AdamW (0.01)")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is random (1)")
    parser.add_argument("--device", help="cuda, cuda:1 or cpu (cuda where there is one)")
    return train(parser.parse_args())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"train.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
