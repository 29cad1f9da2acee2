"""Tests of what train.py does beside training: reading, enlarging, writing."""

import gzip
import hashlib
import json
import os
import struct
import tempfile
import unittest
from array import array
from pathlib import Path

import train

try:
    import numpy
except ImportError:
    numpy = None

DATA = Path(__file__).resolve().parents[2] / "data/fashion-mnist"
T10K = [DATA / f"t10k-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1")]


class Array:
    """As much of NumPy's arrays as the writer uses."""

    def __init__(self, shape, values):
        self.shape, self.values = shape, array("f", values)

    def astype(self, _):
        return self

    def tobytes(self):
        return self.values.tobytes()


class Writing(unittest.TestCase):
    def test_the_file_says_where_its_tensors_lie(self):
        file = train.safetensors({"b": Array((2, 1), [1, 2]), "a": Array((3,), [3, 4, 5])})
        (length,) = struct.unpack_from("<Q", file)
        self.assertEqual(length % 8, 0)
        header = json.loads(file[8 : 8 + length])
        wanted = {
            "b": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
            "a": {"dtype": "F32", "shape": [3], "data_offsets": [8, 20]},
        }
        self.assertEqual(header, wanted)
        self.assertEqual(struct.unpack("<5f", file[8 + length :]), (1, 2, 3, 4, 5))

    def test_a_file_is_whole_or_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights"
            train.write_whole(path, b"one")
            train.write_whole(path, b"two")
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["weights"])
            self.assertEqual(path.read_bytes(), b"two")
            with self.assertRaisesRegex(train.Failure, "no/weights"):
                train.write_whole(Path(folder) / "no/weights", b"")


@unittest.skipUnless(numpy, "needs NumPy")
class Images(unittest.TestCase):
    def idx(self, content):
        file = tempfile.NamedTemporaryFile(delete=False)
        self.addCleanup(os.unlink, file.name)
        with file:
            file.write(content)
        return file.name

    def test_plain_and_gzip_are_the_same(self):
        content = struct.pack(">4I", 2051, 2, 1, 3) + bytes(range(6))
        for data in content, gzip.compress(content):
            images = train.read_idx(self.idx(data), train.IMAGES, 3)
            self.assertEqual(images.tolist(), [[[0, 1, 2]], [[3, 4, 5]]])

    def test_broken_files_are_named(self):
        whole = struct.pack(">2I", 2049, 3) + bytes(3)
        for content, why in [
            (b"", "too short"),
            (whole[:-1], "expected 3 bytes of data, found 2"),
            (struct.pack(">2I", 2051, 3), "expected the magic number 2049, found 2051"),
            (gzip.compress(whole)[:-9], "end-of-stream"),
        ]:
            path = self.idx(content)
            with self.assertRaisesRegex(train.Failure, f"{path}: .*{why}"):
                train.read_idx(path, train.LABELS, 1)
        images = self.idx(struct.pack(">4I", 2051, 1, 1, 1) + bytes(1))
        with self.assertRaisesRegex(train.Failure, "has 1 images, but .* has 3 labels"):
            train.read_set(images, self.idx(whole))

    def test_enlarged_images_are_the_studys_bit_for_bit(self):
        images, _ = train.read_set(*T10K)
        content = struct.pack("<4i", 0, *images.shape) + images.tobytes()
        wanted = "3c4f6a0e1f176027000fce605a8840fd9ddce3592bf47d54ae38c5c13dd90c0e"
        self.assertEqual(hashlib.sha256(content).hexdigest(), wanted)


if __name__ == "__main__":
    unittest.main()
