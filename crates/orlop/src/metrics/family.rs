//! Metrics of one name, on their way to the text.

use std::fmt;

use orlop_model::DurationCounts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

type Labels = Vec<(&'static str, String)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
enum Value {
    Whole(u64),
    Real(f64),
    Durations(DurationCounts),
}

/// A name without samples is in the text too, so that what there can be is seen.
#[derive(Debug)]
pub(super) struct Family {
    /// Without `_total`, with its unit.
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, Value)>,
}

impl Family {
    pub(super) fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    #[must_use]
    pub(super) fn with(mut self, labels: &[(&'static str, &str)], value: impl Into<u64>) -> Self {
        self.add(labels, value);
        self
    }

    #[must_use]
    pub(super) fn with_durations(
        mut self,
        labels: &[(&'static str, &str)],
        durations: DurationCounts,
    ) -> Self {
        self.samples.push((escaped(labels), Value::Durations(durations)));
        self
    }

    pub(super) fn add(&mut self, labels: &[(&'static str, &str)], value: impl Into<u64>) {
        self.samples.push((escaped(labels), Value::Whole(value.into())));
    }

    pub(super) fn add_count(&mut self, labels: &[(&'static str, &str)], count: usize) {
        self.add(labels, u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(super) fn add_real(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.samples.push((escaped(labels), Value::Real(value)));
    }

    fn unit(&self) -> Option<Unit> {
        match self.name {
            name if name.ends_with("_bytes") => Some(Unit::Bytes),
            name if name.ends_with("_seconds") => Some(Unit::Seconds),
            name if name.ends_with("_ratio") => Some(Unit::Other("ratio".to_owned())),
            _ => None,
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let unit = self.unit();
        // The library puts the unit behind the name.
        let suffix = unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let name = self.name.strip_suffix(&suffix).unwrap_or(self.name);
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let mut family = encoder.encode_descriptor(name, self.help, unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            match labels.as_slice() {
                [] => self.encode_value(&mut family, value)?,
                labels => self.encode_value(&mut family.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }

    fn encode_value(&self, sample: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
        match (self.kind, value) {
            (_, Value::Durations(taken)) => sample.encode_histogram::<NoLabelSet>(
                taken.seconds,
                taken.count,
                &taken.buckets,
                None,
            ),
            (Kind::Counter, Value::Whole(count)) => {
                sample.encode_counter::<NoLabelSet, _, u64>(count, None)
            }
            (Kind::Counter, Value::Real(sum)) => {
                sample.encode_counter::<NoLabelSet, _, u64>(sum, None)
            }
            (_, Value::Whole(number)) => sample.encode_gauge(number),
            (_, Value::Real(number)) => sample.encode_gauge(number),
        }
    }
}

/// The library writes label values as they are.
fn escaped(labels: &[(&'static str, &str)]) -> Labels {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    labels.iter().map(|(name, value)| (*name, escape(value))).collect()
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

pub(super) fn encode(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut encoded = String::new();
    text::encode(&mut encoded, &registry)?;
    // The library writes infinity as Rust does.
    Ok(encoded.replace(" inf\n", " +Inf\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suffixes_and_odd_labels_are_as_openmetrics_wants_them() {
        let mut sizes = Family::new("orlop_pool_size_bytes", Kind::Gauge, "Size");
        sizes.add(&[("pool", "a\"b\\c\nd")], 7_u64);
        sizes.add_real(&[("pool", "p")], f64::INFINITY);
        let dropped = Family::new("orlop_lines", Kind::Counter, "Lines").with(&[], 3_u64);
        let text = encode(vec![sizes, dropped]).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        assert_eq!(
            lines,
            [
                "# TYPE orlop_pool_size_bytes gauge",
                "# UNIT orlop_pool_size_bytes bytes",
                r#"orlop_pool_size_bytes{pool="a\"b\\c\nd"} 7"#,
                r#"orlop_pool_size_bytes{pool="p"} +Inf"#,
                "# TYPE orlop_lines counter",
                "orlop_lines_total 3",
                "# EOF",
            ]
        );
    }
}
