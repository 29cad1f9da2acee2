"""Tests of the table of candle's models."""

import json
import tempfile
import unittest
from pathlib import Path

import models


def answer(**more):
    layers = [{"count": 2, "convforge_ms": 1.5, "candle_ms": 4}, {"count": 1, "convforge_ms": 1, "candle_ms": 2}]
    return {"cudnn": False, "convolutions": 3, "difference": 2e-6, "from_f32": None, "convforge_ms": 5.0,
            "candle_ms": 12.5, "convforge_bytes": 2**20, "candle_bytes": 3 * 2**20, "layers": layers, **more}


class Table(unittest.TestCase):
    def table(self, **answers):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, content in answers.items():
                path = Path(folder) / (name.replace("_", "-") + ".json")
                path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
                paths.append(path)
            return models.table(paths)

    def test_a_row_has_whole_and_summed_times_and_memory(self):
        (_, _, line), missing = self.table(candle_f32_resnet50=answer())
        self.assertEqual(missing, [])
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        self.assertEqual(cells, ["resnet50", "f32", "without", "5.00", "12.50", "2.50", "4.00", "10.00", "1.0", "3.0",
                                 "2.0e-06"])
        self.assertEqual(len(cells), len(models.HEAD))

    def test_rows_stand_by_type_and_model_and_candle_without_cudnn_first(self):
        lines, _ = self.table(candle_f16_vae=answer(), candle_cudnn_f32_convnext_t=answer(cudnn=True),
                              candle_f32_vae=answer(), candle_f32_convnext_t=answer())
        self.assertEqual([line.split(" | ")[:3] for line in lines[2:]], [
            ["| convnext-t", "f32", "without"], ["| convnext-t", "f32", "with cuDNN"], ["| vae", "f32", "without"],
            ["| vae", "f16", "without"],
        ])

    def test_a_wrong_output_is_marked(self):
        for wrong, more in ((True, {"difference": 2e-4}), (True, {"difference": float("nan")}),
                            (False, {"difference": 2e-4, "cudnn": True}), (True, {"difference": 3e-3, "cudnn": True}),
                            (False, {"difference": 2e-3, "from_f32": [1.2e-3, 1e-3]}),
                            (True, {"difference": 2e-3, "from_f32": [1.6e-3, 1e-3]})):
            lines, _ = self.table(candle_f16_vae=answer(**more))
            self.assertEqual("**wrong**" in lines[2], wrong, more)

    def test_what_has_no_answer_is_named(self):
        lines, missing = self.table(candle_f16_vae="", candle_f16_resnet50="{}", other=answer())
        self.assertEqual(len(lines), 2)
        self.assertEqual(missing, ["candle-f16-vae.json", "candle-f16-resnet50.json", "other.json"])


if __name__ == "__main__":
    unittest.main()
