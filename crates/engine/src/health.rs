//! What Probe asks: is there a pool that serves, and what is wrong with the others?

use orlop_model::{Error, Reason, Result};

use crate::engine::{AbsentPool, Engine, PoolRef};

/// What an operator should know while the plugin serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// What is wrong with pools that do not serve.
    pub failed: Vec<Error>,
    /// Which pools serve and are about to be full.
    pub short: Vec<String>,
}

impl HealthReport {
    /// In one line, if there is anything.
    pub fn warning(&self) -> Option<String> {
        let failed = self.failed.iter().map(Error::to_string);
        let all: Vec<String> = failed.chain(self.short.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Engine {
    /// Ok while the machine is well and a pool serves: one failed pool is no reason to hold up or to
    /// restart a daemon that others depend on (decision 0045). What is wrong with the rest is
    /// returned. Where nothing serves, it is an error, and one that waiting does not mend comes first.
    pub fn check_health(&self) -> Result<HealthReport> {
        self.host().check_health()?;
        let mut serves = false;
        let (mut complaints, mut shortages) = (Vec::new(), Vec::new());
        for pool in self.pools().values() {
            let ask =
                |pool: &PoolRef| pool.health().check().and_then(|()| pool.health().shortage());
            match self.query(pool, ask).and_then(|checked| checked) {
                Ok(shortage) => {
                    serves = true;
                    shortages.extend(shortage);
                }
                Err(failure) => complaints.push(failure),
            }
        }
        complaints.extend(self.absent().iter().map(AbsentPool::complaint));
        let is_lasting = |why: &&Error| !matches!(why, Error::Unreachable { .. });
        match complaints.iter().find(is_lasting).or(complaints.first()) {
            Some(why) if !serves => Err(why.clone()),
            Some(_) | None => Ok(HealthReport { failed: complaints, short: shortages }),
        }
    }
}

impl AbsentPool {
    fn complaint(&self) -> Error {
        match matches!(self.why, Error::Unreachable { .. }) {
            true => self.refusal(),
            // Waiting does not mend it.
            false => self.why.clone(),
        }
    }

    /// For all that might need it.
    pub(crate) fn refusal(&self) -> Error {
        let reason = format!("it is not in service yet: {}", self.why);
        Error::unreachable(
            format!("use pool {}", self.name),
            Reason::explained(reason, self.why.clone()),
        )
    }
}
