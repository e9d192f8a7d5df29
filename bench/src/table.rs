//! Times, one call in each line.

use std::time::{Duration, Instant};

pub(crate) struct Row {
    call: &'static str,
    ranges: usize,
    times: Vec<Duration>,
}

impl Row {
    /// `call` returns how many ranges it received.
    pub(crate) async fn measure(
        name: &'static str,
        runs: usize,
        mut call: impl AsyncFnMut() -> usize,
    ) -> Self {
        // The first one also pays for what the kernel has not read yet.
        let mut ranges = call().await;
        let mut times = Vec::new();
        for _ in 0..runs {
            let began = Instant::now();
            ranges = call().await;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        Self { call: name, ranges, times }
    }

    fn print(&self) {
        let millis = |time: &Duration| time.as_secs_f64() * 1000.0;
        let [first, .., last] = self.times.as_slice() else {
            return println!("{:<24} {:>8}", self.call, self.ranges);
        };
        let median = &self.times[self.times.len() / 2];
        println!(
            "{:<24} {:>8} {:>12.2} {:>10.2} {:>10.2}",
            self.call,
            self.ranges,
            millis(median),
            millis(first),
            millis(last)
        );
    }
}

pub(crate) fn print(rows: &[Row]) {
    println!("{:<24} {:>8} {:>12} {:>10} {:>10}", "call", "ranges", "median ms", "least", "most");
    rows.iter().for_each(Row::print);
}
