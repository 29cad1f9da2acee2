//! What the convolutions of a model take together.

use convforge::Problem;
use serde::{Deserialize, Serialize};

use super::{
    Look, Row, Status,
    table::{Line, Lines, duration, or_dash},
};
use crate::suite::Layer;

/// A model's convolutions, and what they take by each of those who compete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelTotals {
    /// The model, the suite of its layers.
    pub model: String,
    /// Its distinct convolutions.
    pub layers: Vec<ModelLayer>,
    /// All its convolutions by one competitor.
    pub sums: Vec<Sum>,
}

/// One of a model's convolutions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelLayer {
    /// Its name, that of the first node.
    pub layer: String,
    /// The problem that was run.
    pub problem: Problem,
    /// The nodes that it stands for.
    pub nodes: Vec<String>,
    /// The fastest of each competitor.
    pub times: Vec<Best>,
}

/// The fastest that a competitor has for a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The competitor: [`FASTEST`], `handwritten`, `cuBLAS`, `cuDNN`, a variant of the CPU, or a pick.
    pub who: String,
    /// The variant with its configuration.
    pub name: String,
    /// Its median for one node.
    pub us: f64,
}

/// All convolutions of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// The competitor.
    pub who: String,
    /// Its times for all nodes together; none where it has none for some.
    pub us: Option<f64>,
    /// The layers that it has no time for.
    pub missing: Vec<String>,
}

/// Of all variants, the fastest for each layer.
pub const FASTEST: &str = "fastest";

/// Whose a row is.
fn competitor(row: &Row) -> &str {
    match row.family() {
        _ if row.chose.is_some() => &row.variant,
        "cudnn" => "cuDNN",
        "cublas" => "cuBLAS",
        "cpu" => &row.variant,
        _ => "handwritten",
    }
}

impl ModelTotals {
    /// The models that layers are of, without times.
    pub fn of(layers: &[Layer]) -> Vec<Self> {
        let mut models: Vec<ModelTotals> = Vec::new();
        for layer in layers.iter().filter(|layer| !layer.nodes.is_empty()) {
            let of_model = ModelLayer {
                layer: layer.layer.clone(),
                problem: layer.problem.clone(),
                nodes: layer.nodes.clone(),
                times: Vec::new(),
            };
            let mut known = models.iter_mut();
            match known.find(|model| model.model == layer.suite) {
                Some(model) => model.layers.push(of_model),
                None => models.push(ModelTotals {
                    model: layer.suite.clone(),
                    layers: vec![of_model],
                    sums: Vec::new(),
                }),
            }
        }
        models
    }

    /// Takes the times of rows.
    pub(super) fn fill(&mut self, rows: &[Row]) {
        for layer in &mut self.layers {
            let own = rows.iter().filter(|row| {
                (&row.suite, &row.layer, &row.problem)
                    == (&self.model, &layer.layer, &layer.problem)
            });
            let own: Vec<&Row> = own.collect();
            layer.times.clear();
            for row in own {
                if row.chose.is_none() {
                    layer.offer(FASTEST, row);
                }
                layer.offer(competitor(row), row);
            }
        }
        let mut all: Vec<&str> = Vec::new();
        for time in self.layers.iter().flat_map(|layer| &layer.times) {
            if !all.contains(&&*time.who) {
                all.push(&time.who);
            }
        }
        self.sums = all.into_iter().map(|who| self.sum(who)).collect();
    }

    fn sum(&self, who: &str) -> Sum {
        let missing = self.layers.iter().filter(|layer| layer.us(who).is_none());
        Sum {
            who: who.to_owned(),
            us: self.layers.iter().map(|layer| layer.us(who)).sum(),
            missing: missing.map(|layer| layer.layer.clone()).collect(),
        }
    }

    /// How many convolutions it has.
    fn nodes(&self) -> usize {
        self.layers.iter().map(|layer| layer.nodes.len()).sum()
    }

    /// What the table is called.
    pub fn title(&self) -> String {
        format!(
            "{}: {} convolutions, {} of them distinct",
            self.model,
            self.nodes(),
            self.layers.len()
        )
    }

    /// The table for people: a line for each layer, and the sums; below it what they lack.
    pub fn text(&self, look: Look) -> String {
        let remarks = self.remarks().into_iter();
        let remarks = remarks.map(|text| format!("\n{}", look.paragraph("  ", &text)));
        self.lines().text(look) + &remarks.collect::<String>()
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let remarks = self.remarks().into_iter().map(|text| format!("\n{text}\n"));
        self.lines().markdown() + &remarks.collect::<String>()
    }

    /// What the sums lack.
    fn remarks(&self) -> Vec<String> {
        let count = self.layers.len();
        let lacking = self.sums.iter().filter(|sum| !sum.missing.is_empty());
        let lacking = lacking.map(|Sum { who, missing, .. }| {
            let (names, lacks) = (missing.join(", "), missing.len());
            format!("{who} has no time for {lacks} of {count} layers: {names}")
        });
        let mut images = self.layers.iter().map(|layer| layer.problem.n());
        let first = images.next();
        let is_mixed = images.any(|n| Some(n) != first);
        let mixed =
            "The layers do not have the same number of images: the sums are of what was timed.";
        lacking.chain(is_mixed.then(|| mixed.to_owned())).collect()
    }

    fn lines(&self) -> Lines<'_> {
        let mut header = vec!["layer", "problem", "nodes", "by"];
        header.extend(self.sums.iter().map(|sum| &*sum.who));
        let line = |cells: Vec<String>| Line {
            name: cells[0].clone(),
            status: Status::Passed,
            reason: None,
            median_us: None,
            cells,
        };
        let layers = self.layers.iter().map(|layer| {
            let best = layer.times.iter().find(|time| time.who == FASTEST);
            let mut cells = vec![
                layer.layer.clone(),
                layer.problem.to_string(),
                layer.nodes.len().to_string(),
                or_dash(best.map(|best| best.name.clone())),
            ];
            let us = self.sums.iter().map(|sum| layer.us(&sum.who));
            cells.extend(us.map(|us| or_dash(us.map(duration))));
            line(cells)
        });
        let mut all = vec![
            "all".to_owned(),
            String::new(),
            self.nodes().to_string(),
            "-".to_owned(),
        ];
        let sums = self.sums.iter();
        all.extend(sums.map(|sum| or_dash(sum.us.map(duration))));
        Lines {
            header,
            lines: layers
                .collect::<Vec<_>>()
                .into_iter()
                .chain([line(all)])
                .collect(),
        }
    }
}

impl ModelLayer {
    /// Takes a row's time, if it is the fastest of its competitor.
    fn offer(&mut self, who: &str, row: &Row) {
        let Some(us) = row.median_us else { return };
        let best = Best {
            who: who.to_owned(),
            name: row.label(),
            us,
        };
        match self.times.iter_mut().find(|time| time.who == who) {
            Some(known) if known.us <= us => {}
            Some(known) => *known = best,
            None => self.times.push(best),
        }
    }

    /// What a competitor takes for all its nodes.
    fn us(&self, who: &str) -> Option<f64> {
        let best = self.times.iter().find(|time| time.who == who)?;
        Some(best.us * self.nodes.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use convforge::{Device, variants};

    use super::*;
    use crate::measure::Options;

    fn layer(name: &str, problem: &str, nodes: &[&str]) -> Layer {
        Layer {
            suite: "net.onnx".to_owned(),
            layer: name.to_owned(),
            problem: problem.parse().unwrap(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        }
    }

    fn row(layer: &Layer, variant: &str, chose: Option<&str>, us: Option<f64>) -> Row {
        let contender = variants::find("cpu_direct").unwrap().into();
        let (device, options) = (Device::cpu(), Options::of(&Device::cpu()));
        Row {
            variant: variant.to_owned(),
            chose: chose.map(str::to_owned),
            median_us: us,
            ..Row::new(layer, &contender, &device, &options)
        }
    }

    #[test]
    fn sums_count_each_node_and_lack_nothing_silently() {
        let [a, b] = [
            layer("a", "mb1ic3ih8oc4kh3", &["a", "a2", "a3"]),
            layer("b", "mb1ic4ih8oc4kh3", &["b"]),
        ];
        let alone = Layer::alone(a.problem.clone());
        let mut models = ModelTotals::of(&[a.clone(), alone.clone(), b.clone()]);
        let [model] = &mut models[..] else {
            panic!("{models:?}");
        };
        model.fill(&[
            row(&a, "small_fma", None, Some(10.0)),
            row(&a, "direct_naive", None, Some(30.0)),
            row(&a, "cudnn", None, Some(8.0)),
            row(&a, "cudnn_transform", None, Some(7.0)),
            row(&a, "rule", Some("small_fma"), Some(5.0)),
            row(&alone, "small_fma", None, Some(1.0)),
            row(&b, "direct_naive", None, Some(100.0)),
            row(&b, "cudnn", None, None),
            row(&b, "rule", Some("direct_naive"), Some(101.0)),
        ]);
        let sum = |who: &str| model.sums.iter().find(|sum| sum.who == who).unwrap();
        assert_eq!(sum(FASTEST).us, Some(3.0 * 7.0 + 100.0));
        assert_eq!(sum("handwritten").us, Some(3.0 * 10.0 + 100.0));
        assert_eq!(sum("rule").us, Some(3.0 * 5.0 + 101.0));
        assert_eq!(sum("cuDNN").us, None);
        assert_eq!(sum("cuDNN").missing, ["b"]);

        let text = model.text(Look::default());
        for part in [
            "cudnn_transform",
            "21.0 us",
            "130 us",
            "cuDNN has no time for 1 of 2 layers: b",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("number of images"), "{text}");
        assert_eq!(
            model.title(),
            "net.onnx: 4 convolutions, 2 of them distinct"
        );
        let markdown = model.markdown();
        assert!(
            markdown.contains("| all |  | 4 | - | 121 us |"),
            "{markdown}"
        );
    }

    #[test]
    fn layers_of_other_batches_are_told() {
        let layers = [
            layer("a", "mb1ic3ih8oc4kh3", &["a"]),
            layer("b", "mb2ic4ih8oc4kh3", &["b"]),
        ];
        let text = ModelTotals::of(&layers)[0].text(Look::default());
        assert!(
            text.contains("do not have the same number of images"),
            "{text}"
        );
    }
}
