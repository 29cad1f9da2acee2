"""What the description of a network is made of: tensors, convolutions, and the network that keeps them with the
weights and multiplications of everything else that has some. Padding is symmetric, as in PyTorch.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Tensor(NamedTuple):
    """What goes from layer to layer, of one image."""

    c: int
    h: int
    w: int


@dataclass(frozen=True)
class Conv:
    """The shape of a convolution of one image. Two of a network that are equal are one distinct layer."""

    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: tuple = (1, 1)
    pad: tuple = (0, 0)
    dilation: tuple = (1, 1)
    groups: int = 1

    @property
    def out(self):
        """Output height and width."""
        sizes = zip((self.h, self.w), (self.r, self.s), self.pad, self.dilation, self.stride)
        return tuple((i + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for i, k, pad, dilation, stride in sizes)

    @property
    def kind(self):
        """depthwise, grouped or dense."""
        if self.groups == 1:
            return "dense"
        return "depthwise" if self.groups == self.c else "grouped"

    @property
    def weights(self):
        return self.k * (self.c // self.groups) * self.r * self.s

    @property
    def macs(self):
        """Multiplications, padding counted."""
        p, q = self.out
        return self.weights * p * q

    def text(self, images):
        """As crates/tools and benchdnn spell it."""
        groups = f"g{self.groups}" if self.groups > 1 else ""
        dilation = tuple(d - 1 for d in self.dilation)
        centred = [
            max((o - 1) * stride + d * (k - 1) + 1 - i, 0) // 2
            for o, stride, d, k, i in zip(self.out, self.stride, self.dilation, (self.r, self.s), (self.h, self.w))
        ]
        words = [
            f"{groups}mb{images}ic{self.c}", axes("i", (self.h, self.w)),
            f"oc{self.k}", axes("o", self.out), axes("k", (self.r, self.s)),
            axes("s", self.stride, 1), axes("d", dilation, 0),
            # Left out, padding would be derived from the output size.
            axes("p", self.pad) if any(self.pad) or any(centred) else "",
        ]
        return "".join(words)


def axes(name, sizes, default=None):
    high, wide = sizes
    if high != wide:
        return f"{name}h{high}{name}w{wide}"
    return "" if high == default else f"{name}h{high}"


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


@dataclass
class Network:
    """What a network was found to be made of."""

    convs: list = field(default_factory=list)  # (name, Conv), in their order
    weights: int = 0  # of everything, normalisations and biases among it
    macs: int = 0  # of one image, in products with weights

    def conv(self, name, x, k, r, stride=1, pad=None, groups=1, bias=False, norm=True):
        """A convolution, padded by half its filter unless told otherwise; with scale and shift of a normalisation
        behind it, or a bias."""
        r, s = pair(r)
        pad = (r // 2, s // 2) if pad is None else pair(pad)
        conv = Conv(x.c, x.h, x.w, k, r, s, pair(stride), pad, groups=groups)
        self.convs.append((name, conv))
        self.weights += conv.weights + 2 * k * norm + k * bias
        self.macs += conv.macs
        return Tensor(k, *conv.out)

    def depthwise(self, name, x, r, stride=1, **more):
        return self.conv(name, x, x.c, r, stride, groups=x.c, **more)

    def linear(self, inputs, outputs, bias=True, rows=1):
        """A fully connected layer, applied to so many rows."""
        self.weights += inputs * outputs + outputs * bias
        self.macs += inputs * outputs * rows

    def norm(self, channels):
        self.weights += 2 * channels

    def excite(self, channels, width):
        """Squeeze and excitation."""
        self.linear(channels, width)
        self.linear(width, channels)

    def transposed(self, x, k, r):
        """A transposed convolution whose stride is its filter."""
        self.weights += x.c * k * r * r + k
        self.macs += x.c * k * r * r * x.h * x.w
        return Tensor(k, x.h * r, x.w * r)

    def distinct(self, kinds):
        """The distinct convolutions of these kinds: each shape with the name that has it first."""
        shapes = {}
        for name, conv in self.convs:
            if conv.kind in kinds:
                shapes.setdefault(conv, name)
        return [(name, conv) for conv, name in shapes.items()]


def pool(x, r, stride, pad=0, ceil=False):
    up = stride - 1 if ceil else 0
    return Tensor(x.c, *((i + 2 * pad - r + up) // stride + 1 for i in (x.h, x.w)))


def wider(x, *others):
    """Concatenated along the channels."""
    return Tensor(x.c + sum(other.c for other in others), x.h, x.w)


def doubled(x):
    """Upsampled by two."""
    return Tensor(x.c, 2 * x.h, 2 * x.w)


def image(size=224):
    return Tensor(3, size, size)


def divisible(channels, by=8):
    """The nearest multiple, never below 90 %."""
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded
