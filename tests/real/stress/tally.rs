//! How many calls of each kind were made, and what was answered.

use std::collections::BTreeMap;
use std::fmt;

use orlop_tests::Code;

#[derive(Default)]
pub(crate) struct Tally(BTreeMap<&'static str, BTreeMap<String, u64>>);

impl Tally {
    pub(crate) fn count(&mut self, call: &'static str, code: Code) {
        *self.0.entry(call).or_default().entry(format!("{code:?}")).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (call, codes) in &other.0 {
            for (code, count) in codes {
                *self.0.entry(call).or_default().entry(code.clone()).or_default() += count;
            }
        }
    }

    /// A run in which some call never succeeded has not tried it.
    pub(crate) fn assert_varied(&self) {
        for (call, codes) in &self.0 {
            assert!(codes.contains_key("Ok"), "{call} was never OK: {codes:?}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = 0;
        for (call, codes) in &self.0 {
            let total: u64 = codes.values().sum();
            all += total;
            let codes: Vec<_> =
                codes.iter().map(|(code, count)| format!("{code} {count}")).collect();
            writeln!(f, "{call:<22} {total:>7}  {}", codes.join(", "))?;
        }
        write!(f, "{all} calls in all")
    }
}
