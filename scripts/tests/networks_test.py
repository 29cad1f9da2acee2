"""That the networks are the published ones: their weights, to the last one where that is published, and their
multiplications, which strides and sizes change and weights do not.
"""

import unittest

import networks
from layers import Conv, Network, Tensor, divisible, pool

# The weights and 10^9 multiplications of one image that torchvision publishes (num_params, _ops).
TORCHVISION = {
    "resnet18": (11_689_512, 1.814),
    "resnet50_v15": (25_557_032, 4.089),
    "resnext50": (25_028_904, 4.23),
    "regnety_800mf": (6_432_512, 0.834),
    "regnety_1600mf": (11_202_430, 1.612),
    "mobilenet_v2": (3_504_872, 0.301),
    "mobilenet_v3_large": (5_483_032, 0.217),
    "shufflenet_v2": (2_278_604, 0.145),
    "efficientnet_b0": (5_288_548, 0.386),
    "convnext_t": (28_589_128, 4.456),
    "densenet121": (7_978_856, 2.834),
    # But for the classifier of training: 1x1 to 128, 5x5 to 768, both normalised, and a linear layer.
    "inception_v3": (27_161_264 - (768 * 128 + 2 * 128 + 25 * 128 * 768 + 2 * 768 + 769 * 1000), 5.713),
    "resnext101_64x4d": (83_455_272, 15.46),
    "wide_resnet50": (68_883_240, 11.398),
    "regnetx_400mf": (5_495_976, 0.414),
    "mnasnet": (4_383_312, 0.314),
    "squeezenet11": (1_235_496, 0.349),
    "googlenet": (6_624_904, 1.498),
    "efficientnet_v2_s": (21_458_488, 8.366),
}

# The others: 10^9 multiplications as far as they are published, and how exactly.
OTHERS = {
    # The paper has 569 million; the weights are TensorFlow's trainable ones.
    "mobilenet_v1": (4_231_976, 0.569, 0.0005),
    # 15.3 in the paper, 15.4 in mmpretrain's list, merged. The weights there are 79.5 million.
    "replknet31_b": (79_527_272, 15.35, 0.05),
    # Those of the configuration, 8.7 x 10^9 operations of two each.
    "yolov8_n": (3_157_200, 8.7 / 2, 0.025),
    # The weights that frameworks count; nobody agrees on what to count of the attention.
    "sd15_unet": (859_520_964, None, None),
    # The common implementation's with 3 input channels and 2 classes.
    "unet": (31_037_698, None, None),
    # The weights are the paper's; multiplications are 8.4 in lists.
    "xception": (22_855_952, 8.4, 0.05),
}


def sizes(net):
    """The heights of the outputs in their order, repetitions left out."""
    found = []
    for _, conv in net.convs:
        if conv.out[0] not in found:
            found.append(conv.out[0])
    return found


class Published(unittest.TestCase):
    def holds(self, name, weights, gmacs, delta):
        net = getattr(networks, name)()
        with self.subTest(name):
            self.assertEqual(net.weights, weights)
            if gmacs is not None:
                self.assertAlmostEqual(net.macs / 1e9, gmacs, delta=delta)

    def test_those_of_torchvision(self):
        for name, (weights, gmacs) in TORCHVISION.items():
            self.holds(name, weights, gmacs, delta=0.00051)

    def test_the_others(self):
        for name, (weights, gmacs, delta) in OTHERS.items():
            self.holds(name, weights, gmacs, delta)

    def test_sizes_where_multiplications_are_not_published(self):
        self.assertEqual(sizes(networks.unet()), [256, 128, 64, 32, 16])
        self.assertEqual(sizes(networks.sd15_unet()), [64, 32, 16, 8])

    def test_each_output_is_square_and_each_network_is_held_against_something(self):
        for name, function in vars(networks).items():
            if getattr(function, "__module__", "") != "networks" or function.__code__.co_argcount:
                continue
            self.assertIn(name, {**TORCHVISION, **OTHERS})
            for layer, conv in function().convs:
                self.assertEqual(*conv.out, f"{name} {layer}")


class Shapes(unittest.TestCase):
    def test_their_texts(self):
        def text(*numbers, **more):
            return Conv(*numbers, **more).text(2)

        self.assertEqual(text(3, 8, 8, 4, 3, 3), "mb2ic3ih8oc4oh6kh3")
        self.assertEqual(text(3, 8, 9, 4, 1, 1), "mb2ic3ih8iw9oc4oh8ow9kh1")
        self.assertEqual(text(8, 17, 17, 6, 1, 7, pad=(0, 3)), "mb2ic8ih17oc6oh17kh1kw7ph0pw3")
        strided = text(8, 14, 14, 8, 3, 3, stride=(2, 2), pad=(1, 1), groups=8)
        self.assertEqual(strided, "g8mb2ic8ih14oc8oh7kh3sh2ph1")
        dilated = text(8, 14, 14, 8, 3, 3, stride=(1, 2), dilation=(2, 1), groups=2)
        self.assertEqual(dilated, "g2mb2ic8ih14oc8oh10ow6kh3sh1sw2dh1dw0")

    def test_kinds(self):
        kinds = [Conv(8, 4, 4, k, 3, 3, groups=groups).kind for k, groups in ((8, 1), (8, 2), (8, 8), (16, 8))]
        self.assertEqual(kinds, ["dense", "grouped", "depthwise", "depthwise"])

    def test_equal_layers_are_one(self):
        net = Network()
        x = Tensor(8, 4, 4)
        for name, groups in (("a", 1), ("b", 1), ("c", 8)):
            net.conv(name, x, 8, 3, groups=groups)
        self.assertEqual([name for name, _ in net.distinct(("dense", "depthwise"))], ["a", "c"])
        self.assertEqual([name for name, _ in net.distinct(("depthwise",))], ["c"])

    def test_pools_and_multiples(self):
        x = Tensor(1, 111, 112)
        self.assertEqual(pool(x, 3, 2), (1, 55, 55))
        self.assertEqual(pool(x, 3, 2, ceil=True), (1, 55, 56))
        self.assertEqual(pool(x, 3, 2, 1), (1, 56, 56))
        self.assertEqual([divisible(c) for c in (3, 18, 20, 30)], [8, 24, 24, 32])


if __name__ == "__main__":
    unittest.main()
