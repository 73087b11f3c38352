//! `hit_ratio`: memory for the partitions that hit less than the others, a kind of fairness.
//!
//! It gives space to objects that cannot be cached and takes it from partitions that hit easily,
//! even if few requests wait for the former.

use super::Fill;
use crate::{Needs, Options, Policy, Proposal, Signal, View};

/// Claims to the pool by hit ratio: the weight of a partition below the mean hit ratio is the mean
/// divided by its own.
///
/// An unfilled partition enters the mean as zero; one without look-ups does not enter it; one that
/// never hits gets nothing.
#[derive(Clone)]
pub(crate) struct HitRatio {
    fill: Fill,
}

impl HitRatio {
    pub(crate) fn new(options: &Options) -> Self {
        Self { fill: Fill::strict(options) }
    }
}

impl Policy for HitRatio {
    fn name(&self) -> &'static str {
        "hit_ratio"
    }

    fn needs(&self) -> Needs {
        Needs { requests: true, ..Needs::default() }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let ratios: Vec<Option<f64>> = view.seen.partitions.iter().map(|seen| seen.hit_ratio()).collect();
        let signal = Signal { before: "", after: " of what is missing to the mean hit ratio" };
        let weights = weights(&ratios, &self.fill.of(view));
        Proposal::Claims(self.fill.claims(view, weights, signal))
    }
}

pub(super) fn weights(ratios: &[Option<f64>], filled: &[bool]) -> Vec<f64> {
    let entering: Vec<f64> = ratios
        .iter()
        .zip(filled)
        .filter_map(|(ratio, &filled)| ratio.map(|ratio| if filled { ratio } else { 0.0 }))
        .collect();
    let mean = entering.iter().sum::<f64>() / entering.len() as f64;
    let below = |ratio: f64| ratio > 0.0 && ratio < mean;
    ratios.iter().map(|ratio| ratio.filter(|&ratio| below(ratio)).map_or(0.0, |ratio| mean / ratio)).collect()
}
