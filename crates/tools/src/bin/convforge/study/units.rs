//! The pieces of work of a study, each measured and kept by itself.

use convforge::{Device, Math};
use convforge_tools::{
    Contender, Result, measure,
    study::{
        HostMemory, NetworkData, NetworkOptions, OverlapOptions, Study, errors, network, overlap,
    },
    suite::{self, Layer},
};

use super::part::Part;
use crate::terminal;

/// Numbers of streams.
const STREAMS: [usize; 5] = [1, 2, 4, 8, 16];

/// One piece of work.
#[derive(Clone)]
pub enum Unit {
    /// A layer, its contenders side by side.
    Layer {
        layer: Layer,
        contenders: Vec<Contender>,
    },
    /// The network with one variant.
    Network {
        contender: Contender,
        math: Math,
        images: usize,
    },
    /// A layer, its batch split over streams.
    Overlap {
        layer: Layer,
        contender: Contender,
        timeline: bool,
    },
    /// The errors on a layer, its contenders side by side.
    Errors {
        layer: Layer,
        contenders: Vec<Contender>,
    },
}

/// How units are measured.
pub struct Measuring<'a> {
    pub device: &'a Device,
    /// There is some where the network is run.
    pub data: Option<NetworkData<'a>>,
    pub layers: measure::Options,
    pub network: NetworkOptions,
}

impl Unit {
    pub fn part(&self) -> Part {
        match self {
            Unit::Layer { .. } => Part::Layers,
            Unit::Network { .. } => Part::Network,
            Unit::Overlap { .. } => Part::Overlap,
            Unit::Errors { .. } => Part::Errors,
        }
    }

    /// What it is called.
    pub fn title(&self) -> String {
        match self {
            Unit::Layer { layer, .. } => layer.title(),
            Unit::Network {
                contender,
                math,
                images,
            } => {
                format!("network {images} images {} {math}", contender.name())
            }
            Unit::Overlap {
                layer, contender, ..
            } => format!("streams {} {}", layer.title(), contender.name()),
            Unit::Errors { layer, .. } => format!("errors {}", layer.title()),
        }
    }

    /// Whether the study has it.
    pub fn is_done(&self, study: &Study) -> bool {
        match self {
            Unit::Layer { layer, contenders } => study.has_layer(layer, contenders),
            Unit::Network {
                contender,
                math,
                images,
            } => study.has_network(&contender.name(), *math, *images),
            Unit::Overlap {
                layer, contender, ..
            } => study.has_overlap(layer, &contender.name()),
            Unit::Errors { layer, contenders } => study.has_errors(layer, contenders),
        }
    }

    /// Measures it and puts what it found into the study.
    pub fn run(&self, with: &Measuring, study: &mut Study, say: &mut dyn FnMut(&str)) {
        let (device, stop) = (with.device, terminal::stop());
        match self {
            Unit::Layer { layer, contenders } => {
                let rows = measure::compare(device, layer, contenders, &with.layers, stop, say);
                study.put_layers(&rows);
            }
            Unit::Network {
                contender,
                math,
                images,
            } => {
                let options = NetworkOptions {
                    images: *images,
                    ..with.network.clone()
                };
                if let Some(data) = &with.data {
                    study.put_network(network(device, data, contender, *math, &options, stop, say));
                }
            }
            Unit::Overlap {
                layer,
                contender,
                timeline,
            } => {
                let options = OverlapOptions {
                    streams: STREAMS.to_vec(),
                    memory: vec![HostMemory::Pinned, HostMemory::Pageable],
                    chunk: None,
                    runs: with.network.runs,
                    seed: with.network.seed,
                    timeline: *timeline,
                };
                study.put_overlap(&overlap(device, layer, contender, &options, stop, say));
            }
            Unit::Errors { layer, contenders } => {
                let seed = with.layers.seed;
                study.put_errors(&errors(device, layer, contenders, seed, stop, say));
            }
        }
    }
}

/// The layers that a CPU gets through, with smaller batches where that helps; and what was reduced.
pub fn reduce_layers(layers: &[Layer]) -> (Vec<Layer>, Vec<String>) {
    let (mut layers, mut notes) = suite::reduce_for_cpu(layers);
    layers.retain(|layer| {
        let small = layer.problem.flops() <= suite::CPU_FLOPS;
        if !small {
            notes.push(format!(
                "{}: left out on the CPU, it is too large",
                layer.title()
            ));
        }
        small
    });
    (layers, notes)
}

/// The layer multiplied otherwise.
pub fn with_math(layer: &Layer, math: Math) -> Result<Layer> {
    Ok(Layer {
        problem: layer.problem.with(|shape| shape.math = math)?,
        ..layer.clone()
    })
}
