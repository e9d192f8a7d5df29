//! A volume's condition and fill level.

use crate::error::Error;
use crate::health_reason::HealthReason;

/// One thing that is wrong, with a volume or with what it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub reason: HealthReason,
    /// For people: what is wrong, and what would mend it.
    pub message: String,
}

impl Problem {
    pub fn new(reason: HealthReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Of a check that failed with this error.
    pub fn of(error: &Error) -> Self {
        Self::new(HealthReason::of(error), error.to_string())
    }
}

/// What is wrong with a volume, the worst first; or, if nothing is, that it is well. One source for every
/// answer about it: the condition of CSI up to 1.12 has the first problem, the health of CSI 1.13 all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    problems: Vec<Problem>,
    healthy: String,
}

impl Condition {
    pub fn healthy(message: impl Into<String>) -> Self {
        Self { problems: Vec::new(), healthy: message.into() }
    }

    pub fn abnormal(reason: HealthReason, message: impl Into<String>) -> Self {
        Self::of(vec![Problem::new(reason, message)], "")
    }

    /// `healthy` is what is said if there are no problems.
    pub fn of(problems: Vec<Problem>, healthy: impl Into<String>) -> Self {
        let mut condition = Self::healthy(healthy);
        condition.extend(problems);
        condition
    }

    pub fn of_error(error: &Error) -> Self {
        Self::of(vec![Problem::of(error)], "")
    }

    /// A reason occurs once; what was there first stays.
    pub fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            if self.problems.iter().all(|known| known.reason != problem.reason) {
                self.problems.push(problem);
            }
        }
    }

    pub fn is_abnormal(&self) -> bool {
        !self.problems.is_empty()
    }

    /// A verdict for people.
    pub fn message(&self) -> &str {
        self.problems.first().map_or(&self.healthy, |problem| &problem.message)
    }

    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

/// How full a mounted filesystem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// Filesystems without a fixed number of inodes (btrfs) report 0 in all.
    pub total_inodes: u64,
    pub free_inodes: u64,
    /// It writes no more after an error, whatever its mount says.
    pub has_given_up: bool,
}

#[cfg(test)]
mod tests;
