"""The convolutions of published networks, layer by layer, as their papers and reference implementations
define them: channels, sizes, strides, expansions, repeats.

A network is a function that walks through itself. Beside its convolutions it counts what else has weights, so that
the totals can be held against the published ones (networks_test.py). Two fully connected layers on pooled channels
(squeeze and excitation) are no convolutions here, though some implementations write them so.
"""

from layers import Network, Tensor, divisible, doubled, image, pool, wider

# Residual networks: torchvision's resnet.py, where stride is in the 3x3 (v1.5).


def resnet_stem(net):
    return pool(net.conv("conv1", image(), 64, 7, 2), 3, 2, 1)


def resnet18():
    net = Network()
    x = resnet_stem(net)
    for stage, (width, stride) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), 1):
        for block in range(2):
            at, step = f"layer{stage}.{block}", stride if block == 0 else 1
            if block == 0 and stage > 1:
                net.conv(f"{at}.downsample", x, width, 1, step)
            x = net.conv(f"{at}.conv1", x, width, 3, step)
            x = net.conv(f"{at}.conv2", x, width, 3)
    net.linear(512, 1000)
    return net


def bottlenecks(depths, groups=1, group_width=64):
    net = Network()
    x = resnet_stem(net)
    for stage, depth in enumerate(depths, 1):
        planes = 32 << stage
        width = planes * group_width // 64 * groups
        for block in range(depth):
            at, step = f"layer{stage}.{block}", 2 if block == 0 and stage > 1 else 1
            if block == 0:
                net.conv(f"{at}.downsample", x, 4 * planes, 1, step)
            x = net.conv(f"{at}.conv1", x, width, 1)
            x = net.conv(f"{at}.conv2", x, width, 3, step, groups=groups)
            x = net.conv(f"{at}.conv3", x, 4 * planes, 1)
    net.linear(2048, 1000)
    return net


def resnet50_v15():
    return bottlenecks((3, 4, 6, 3))


def resnext50():
    return bottlenecks((3, 4, 6, 3), groups=32, group_width=4)


def resnext101_64x4d():
    return bottlenecks((3, 4, 23, 3), groups=64, group_width=4)


def wide_resnet50():
    return bottlenecks((3, 4, 6, 3), group_width=128)


def regnet(depths, widths, group_width, squeezed):
    net = Network()
    x = net.conv("stem", image(), 32, 3, 2)
    for stage, (depth, width) in enumerate(zip(depths, widths), 1):
        for block in range(depth):
            at, step, inside = f"block{stage}.{block}", 2 if block == 0 else 1, x.c
            if block == 0:
                net.conv(f"{at}.proj", x, width, 1, step)
            x = net.conv(f"{at}.a", x, width, 1)
            x = net.conv(f"{at}.b", x, width, 3, step, groups=width // group_width)
            if squeezed:
                net.excite(width, round(inside / 4))
            x = net.conv(f"{at}.c", x, width, 1)
    net.linear(widths[-1], 1000)
    return net


def regnety_800mf():
    return regnet((1, 3, 8, 2), (64, 144, 320, 784), 16, squeezed=True)


def regnety_1600mf():
    return regnet((2, 6, 17, 2), (48, 120, 336, 888), 24, squeezed=True)


def regnetx_400mf():
    return regnet((1, 2, 7, 12), (32, 64, 160, 400), 16, squeezed=False)


# Networks for telephones.


def mobilenet_v1():
    net = Network()
    x = net.conv("conv1", image(), 32, 3, 2)
    widths = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
    for block, width in enumerate(widths, 2):
        x = net.depthwise(f"conv{block}.dw", x, 3, 2 if block in (3, 5, 7, 13) else 1)
        x = net.conv(f"conv{block}.pw", x, width, 1)
    net.linear(1024, 1000)
    return net


def inverted(net, at, x, expanded, k, r, stride, squeeze=0):
    """An inverted residual block: expand, depthwise, project."""
    if expanded != x.c:
        x = net.conv(f"{at}.expand", x, expanded, 1)
    x = net.depthwise(f"{at}.dw", x, r, stride)
    if squeeze:
        net.excite(expanded, squeeze)
    return net.conv(f"{at}.project", x, k, 1)


def mobilenet_v2():
    net = Network()
    x = net.conv("stem", image(), 32, 3, 2)
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (factor, width, repeats, stride) in enumerate(stages, 1):
        for block in range(repeats):
            x = inverted(net, f"{stage}.{block}", x, factor * x.c, width, 3, stride if block == 0 else 1)
    net.conv("last", x, 1280, 1)
    net.linear(1280, 1000)
    return net


def mobilenet_v3_large():
    net = Network()
    x = net.conv("stem", image(), 16, 3, 2)
    # Filter, expanded, output channels, squeezed or not, stride.
    blocks = (
        (3, 16, 16, 0, 1), (3, 64, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2), (5, 120, 40, 1, 1),
        (5, 120, 40, 1, 1), (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1), (3, 184, 80, 0, 1),
        (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 1, 2), (5, 960, 160, 1, 1), (5, 960, 160, 1, 1),
    )
    for block, (r, expanded, width, squeezed, stride) in enumerate(blocks, 1):
        x = inverted(net, f"{block}", x, expanded, width, r, stride, squeezed * divisible(expanded // 4))
    net.conv("last", x, 960, 1)
    net.linear(960, 1280)
    net.linear(1280, 1000)
    return net


def mnasnet():
    net = Network()
    x = net.conv("stem", image(), 32, 3, 2)
    x = net.depthwise("0.dw", x, 3)
    x = net.conv("0.project", x, 16, 1)
    stages = (
        (3, 24, 3, 3, 2), (3, 40, 3, 5, 2), (6, 80, 3, 5, 2), (6, 96, 2, 3, 1), (6, 192, 4, 5, 2), (6, 320, 1, 3, 1),
    )
    for stage, (factor, width, repeats, r, stride) in enumerate(stages, 1):
        for block in range(repeats):
            x = inverted(net, f"{stage}.{block}", x, factor * x.c, width, r, stride if block == 0 else 1)
    net.conv("last", x, 1280, 1)
    net.linear(1280, 1000)
    return net


def shufflenet_v2():
    net = Network()
    x = pool(net.conv("conv1", image(), 24, 3, 2), 3, 2, 1)
    for stage, (repeats, width) in enumerate(((4, 116), (8, 232), (4, 464)), 2):
        half = width // 2
        for unit in range(repeats):
            at, step = f"stage{stage}.{unit}", 2 if unit == 0 else 1
            branch = x if unit == 0 else Tensor(half, x.h, x.w)
            if unit == 0:
                side = net.depthwise(f"{at}.side.dw", x, 3, 2)
                net.conv(f"{at}.side.pw", side, half, 1)
            branch = net.conv(f"{at}.pw1", branch, half, 1)
            branch = net.depthwise(f"{at}.dw", branch, 3, step)
            branch = net.conv(f"{at}.pw2", branch, half, 1)
            x = Tensor(width, branch.h, branch.w)
    net.conv("conv5", x, 1024, 1)
    net.linear(1024, 1000)
    return net


def squeezenet11():
    net = Network()
    plain = {"bias": True, "norm": False}
    x = pool(net.conv("conv1", image(), 64, 3, 2, pad=0, **plain), 3, 2, ceil=True)
    widths = (16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)
    for fire, (squeezed, half) in enumerate(widths, 2):
        if fire in (4, 6):
            x = pool(x, 3, 2, ceil=True)
        inside = net.conv(f"fire{fire}.squeeze", x, squeezed, 1, **plain)
        one = net.conv(f"fire{fire}.expand1", inside, half, 1, **plain)
        x = wider(one, net.conv(f"fire{fire}.expand3", inside, half, 3, **plain))
    net.conv("conv10", x, 1000, 1, **plain)
    return net


def efficientnet(net, x, stages, last):
    """Stages: fused or not, expansion, width, repeats, filter, stride."""
    for stage, (fused, factor, width, repeats, r, stride) in enumerate(stages, 1):
        for block in range(repeats):
            at, step = f"{stage}.{block}", stride if block == 0 else 1
            if not fused:
                x = inverted(net, at, x, factor * x.c, width, r, step, x.c // 4)
            elif factor == 1:
                x = net.conv(f"{at}.fused", x, width, r, step)
            else:
                x = net.conv(f"{at}.expand", x, factor * x.c, r, step)
                x = net.conv(f"{at}.project", x, width, 1)
    net.conv("last", x, last, 1)
    net.linear(last, 1000)
    return net


def efficientnet_b0():
    net = Network()
    stages = (
        (0, 1, 16, 1, 3, 1), (0, 6, 24, 2, 3, 2), (0, 6, 40, 2, 5, 2), (0, 6, 80, 3, 3, 2), (0, 6, 112, 3, 5, 1),
        (0, 6, 192, 4, 5, 2), (0, 6, 320, 1, 3, 1),
    )
    return efficientnet(net, net.conv("stem", image(), 32, 3, 2), stages, 1280)


def efficientnet_v2_s():
    net = Network()
    stages = (
        (1, 1, 24, 2, 3, 1), (1, 4, 48, 4, 3, 2), (1, 4, 64, 4, 3, 2), (0, 4, 128, 6, 3, 2), (0, 6, 160, 9, 3, 1),
        (0, 6, 256, 15, 3, 2),
    )
    return efficientnet(net, net.conv("stem", image(384), 24, 3, 2), stages, 1280)


# Large filters.


def convnext_t():
    net = Network()
    x = net.conv("stem", image(), 96, 4, 4, pad=0, bias=True)
    for stage, (depth, width) in enumerate(((3, 96), (3, 192), (9, 384), (3, 768)), 1):
        if stage > 1:
            net.norm(x.c)
            x = net.conv(f"downsample{stage}", x, width, 2, 2, pad=0, bias=True, norm=False)
        for block in range(depth):
            at = f"stage{stage}.{block}"
            x = net.depthwise(f"{at}.dw", x, 7, bias=True)
            x = net.conv(f"{at}.pw1", x, 4 * width, 1, bias=True, norm=False)
            x = net.conv(f"{at}.pw2", x, width, 1, bias=True, norm=False)
            net.weights += width  # the layer's scale
    net.norm(768)
    net.linear(768, 1000)
    return net


def replknet31_b():
    """With the small filters merged into the large ones, as it is for inference."""
    net = Network()
    x = net.conv("stem0", image(), 128, 3, 2)
    x = net.depthwise("stem1", x, 3)
    x = net.conv("stem2", x, 128, 1)
    x = net.depthwise("stem3", x, 3, 2)
    for stage, (r, depth, width) in enumerate(((31, 2, 128), (29, 2, 256), (27, 18, 512), (13, 2, 1024)), 1):
        if stage > 1:
            x = net.conv(f"transition{stage}.pw", x, width, 1)
            x = net.depthwise(f"transition{stage}.dw", x, 3, 2)
        for block in range(depth):
            at = f"stage{stage}.{block}"
            net.norm(width)
            net.conv(f"{at}.pw1", x, width, 1)
            net.depthwise(f"{at}.large", x, r, bias=True, norm=False)
            net.conv(f"{at}.pw2", x, width, 1)
            net.norm(width)
            inside = net.conv(f"{at}.ffn1", x, 4 * width, 1)
            net.conv(f"{at}.ffn2", inside, width, 1)
    net.norm(1024)
    net.linear(1024, 1000)
    return net


# Networks that concatenate.


def densenet121():
    """A normalisation stands before each convolution but the first."""
    net = Network()
    x = pool(net.conv("conv0", image(), 64, 7, 2), 3, 2, 1)
    for block, depth in enumerate((6, 12, 24, 16), 1):
        if block > 1:
            net.norm(x.c)
            x = pool(net.conv(f"transition{block - 1}", x, x.c // 2, 1, norm=False), 2, 2)
        for layer in range(1, depth + 1):
            at = f"block{block}.{layer}"
            net.norm(x.c)
            inside = net.conv(f"{at}.conv1", x, 128, 1)
            x = wider(x, net.conv(f"{at}.conv2", inside, 32, 3, norm=False))
    net.norm(1024)
    net.linear(1024, 1000)
    return net


def chain(net, at, x, *convs):
    """Convolutions one after the other: output channels, filter and, if not plain, stride and padding."""
    for number, (k, r, *more) in enumerate(convs, 1):
        name = f"{at}.{number}" if len(convs) > 1 else at
        x = net.conv(name, x, k, r, *more)
    return x


def inception_v3():
    """Without the classifier that training has beside."""
    net = Network()
    x = chain(net, "stem", image(299), (32, 3, 2, 0), (32, 3, 1, 0), (64, 3))
    x = pool(x, 3, 2)
    x = pool(chain(net, "stem2", x, (80, 1), (192, 3, 1, 0)), 3, 2)
    for at, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = wider(
            chain(net, f"{at}.1x1", x, (64, 1)), chain(net, f"{at}.5x5", x, (48, 1), (64, 5)),
            chain(net, f"{at}.3x3", x, (64, 1), (96, 3), (96, 3)), chain(net, f"{at}.pool", x, (pooled, 1)),
        )
    small = chain(net, "6a.dbl", x, (64, 1), (96, 3), (96, 3, 2, 0))
    x = wider(chain(net, "6a.3x3", x, (384, 3, 2, 0)), small, Tensor(x.c, small.h, small.w))
    across, down = (1, 7), (7, 1)
    for at, c in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = wider(
            chain(net, f"{at}.1x1", x, (192, 1)), chain(net, f"{at}.7x7", x, (c, 1), (c, across), (192, down)),
            chain(net, f"{at}.dbl", x, (c, 1), (c, down), (c, across), (c, down), (192, across)),
            chain(net, f"{at}.pool", x, (192, 1)),
        )
    small = chain(net, "7a.7x7", x, (192, 1), (192, across), (192, down), (192, 3, 2, 0))
    x = wider(chain(net, "7a.3x3", x, (192, 1), (320, 3, 2, 0)), small, Tensor(x.c, small.h, small.w))
    for at in ("7b", "7c"):
        branches = [chain(net, f"{at}.1x1", x, (320, 1)), chain(net, f"{at}.pool", x, (192, 1))]
        for name, convs in (("3x3", [(384, 1)]), ("dbl", [(448, 1), (384, 3)])):
            inside = chain(net, f"{at}.{name}", x, *convs)
            branches.append(net.conv(f"{at}.{name}.across", inside, 384, (1, 3)))
            branches.append(net.conv(f"{at}.{name}.down", inside, 384, (3, 1)))
        x = wider(*branches)
    net.linear(2048, 1000)
    return net


def googlenet():
    """As torchvision has it: 3x3 where the paper has 5x5, and without the classifiers of training."""
    net = Network()
    x = pool(net.conv("conv1", image(), 64, 7, 2), 3, 2, ceil=True)
    x = pool(chain(net, "conv2", x, (64, 1), (192, 3)), 3, 2, ceil=True)
    blocks = (
        ("3a", 64, 96, 128, 16, 32, 32), ("3b", 128, 128, 192, 32, 96, 64), ("4a", 192, 96, 208, 16, 48, 64),
        ("4b", 160, 112, 224, 24, 64, 64), ("4c", 128, 128, 256, 24, 64, 64), ("4d", 112, 144, 288, 32, 64, 64),
        ("4e", 256, 160, 320, 32, 128, 128), ("5a", 256, 160, 320, 32, 128, 128), ("5b", 384, 192, 384, 48, 128, 128),
    )
    for at, one, reduced3, three, reduced5, five, pooled in blocks:
        if at.endswith("a") and at != "3a":
            x = pool(x, 3 if at == "4a" else 2, 2, ceil=True)
        x = wider(
            chain(net, f"{at}.1x1", x, (one, 1)), chain(net, f"{at}.3x3", x, (reduced3, 1), (three, 3)),
            chain(net, f"{at}.5x5", x, (reduced5, 1), (five, 3)), chain(net, f"{at}.pool", x, (pooled, 1)),
        )
    net.linear(1024, 1000)
    return net


def xception():
    net = Network()

    def separable(at, x, k):
        return net.conv(f"{at}.pw", net.depthwise(f"{at}.dw", x, 3, norm=False), k, 1)

    x = net.conv("conv1", image(299), 32, 3, 2, pad=0)
    x = net.conv("conv2", x, 64, 3, pad=0)
    widths = ((128, 128), (256, 256), (728, 728), *[(728, 728, 728)] * 8, (728, 1024))
    for block, inside in enumerate(widths, 1):
        before, stride = x, 2 if block in (1, 2, 3, 12) else 1
        for number, width in enumerate(inside, 1):
            x = separable(f"block{block}.{number}", x, width)
        if stride == 2:
            net.conv(f"block{block}.skip", before, x.c, 1, 2)
            x = pool(x, 3, 2, 1)
    x = separable("conv4", separable("conv3", x, 1536), 2048)
    net.linear(2048, 1000)
    return net


# From images to images, and to boxes.


def unet():
    """Padded, with normalisations and two classes, on 256 x 256 pixels."""
    net = Network()

    def double(at, x, k):
        return net.conv(f"{at}.2", net.conv(f"{at}.1", x, k, 3), k, 3)

    down = [double("down0", image(256), 64)]
    for level, width in enumerate((128, 256, 512, 1024), 1):
        down.append(double(f"down{level}", pool(down[-1], 2, 2), width))
    x = down.pop()
    while down:
        at, skip = f"up{len(down) - 1}", down.pop()
        x = double(at, wider(net.transposed(x, skip.c, 2), skip), skip.c)
    net.conv("out", x, 2, 1, bias=True, norm=False)
    return net


def yolov8_n():
    """On 640 x 640 pixels, 80 classes."""
    net = Network()

    def c2f(at, x, k, repeats):
        half = k // 2
        net.conv(f"{at}.cv1", x, k, 1)
        inside = Tensor(half, x.h, x.w)
        for number in range(repeats):
            chain(net, f"{at}.m{number}", inside, (half, 3), (half, 3))
        return net.conv(f"{at}.cv2", Tensor((2 + repeats) * half, x.h, x.w), k, 1)

    x = net.conv("0", image(640), 16, 3, 2)
    kept = []
    for at, (width, repeats) in zip((1, 3, 5, 7), ((32, 1), (64, 2), (128, 2), (256, 1))):
        x = c2f(f"{at + 1}", net.conv(f"{at}", x, width, 3, 2), width, repeats)
        kept.append(x)
    _, p3, p4, _ = kept
    x = net.conv("9.cv1", x, 128, 1)
    p5 = net.conv("9.cv2", Tensor(4 * x.c, x.h, x.w), 256, 1)
    p4 = c2f("12", wider(doubled(p5), p4), 128, 1)
    p3 = c2f("15", wider(doubled(p4), p3), 64, 1)
    p4 = c2f("18", wider(net.conv("16", p3, 64, 3, 2), p4), 128, 1)
    p5 = c2f("21", wider(net.conv("19", p4, 128, 3, 2), p5), 256, 1)
    for level, x in enumerate((p3, p4, p5), 3):
        for name, width, out in (("box", 64, 64), ("class", 80, 80)):
            inside = chain(net, f"detect{level}.{name}", x, (width, 3), (width, 3))
            net.conv(f"detect{level}.{name}.3", inside, out, 1, bias=True, norm=False)
    net.weights += 16  # what reads distances off distributions
    return net


def sd15_unet():
    """The denoiser of Stable Diffusion 1.5 on latents of 64 x 64, with 77 words as context."""
    net = Network()
    plain = {"bias": True, "norm": False}

    def residual(at, x, k):
        net.norm(x.c)
        inside = net.conv(f"{at}.conv1", x, k, 3, **plain)
        net.linear(1280, k)
        net.norm(k)
        net.conv(f"{at}.conv2", inside, k, 3, **plain)
        if x.c != k:
            net.conv(f"{at}.skip", x, k, 1, **plain)
        return inside

    def attention(at, x):
        c, pixels = x.c, x.h * x.w
        net.norm(c)
        net.conv(f"{at}.in", x, c, 1, **plain)
        for context, words in ((c, pixels), (768, 77)):
            net.linear(c, c, False, pixels)
            net.linear(context, c, False, words)
            net.linear(context, c, False, words)
            net.linear(c, c, True, pixels)
        net.linear(c, 8 * c, True, pixels)
        net.linear(4 * c, c, True, pixels)
        for _ in range(3):
            net.norm(c)
        net.conv(f"{at}.out", x, c, 1, **plain)

    net.linear(320, 1280)
    net.linear(1280, 1280)
    x = net.conv("in", Tensor(4, 64, 64), 320, 3, **plain)
    skips = [x]
    widths = (320, 640, 1280, 1280)
    for level, width in enumerate(widths):
        for block in range(2):
            x = residual(f"down{level}.{block}", x, width)
            if level < 3:
                attention(f"down{level}.{block}.attention", x)
            skips.append(x)
        if level < 3:
            x = net.conv(f"down{level}.sample", x, width, 3, 2, **plain)
            skips.append(x)
    x = residual("mid.0", x, 1280)
    attention("mid.attention", x)
    x = residual("mid.1", x, 1280)
    for level, width in reversed(list(enumerate(widths))):
        for block in range(3):
            x = residual(f"up{level}.{block}", wider(x, skips.pop()), width)
            if level < 3:
                attention(f"up{level}.{block}.attention", x)
        if level > 0:
            x = net.conv(f"up{level}.sample", doubled(x), width, 3, **plain)
    net.norm(320)
    net.conv("out", x, 4, 3, **plain)
    return net
