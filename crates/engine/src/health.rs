//! What Probe asks: is there a pool that serves, and what is wrong with the others?

use orlop_model::{Error, Reason, Result};

use crate::engine::{AbsentPool, Engine};

impl Engine {
    /// Ok while the machine is well and a pool serves: one failed pool is no reason to hold up or to
    /// restart a daemon that others depend on (decision 0045). What is wrong with the rest is
    /// returned. Where nothing serves, it is an error, and one that waiting does not mend comes first.
    pub fn check_health(&self) -> Result<Vec<Error>> {
        self.host.check_health()?;
        let mut serves = false;
        let mut complaints = Vec::new();
        for pool in self.pools.values() {
            match self.query(pool, |pool| pool.health().check()).and_then(|checked| checked) {
                Ok(()) => serves = true,
                Err(failure) => complaints.push(failure),
            }
        }
        complaints.extend(self.absent.iter().map(AbsentPool::complaint));
        let is_lasting = |why: &&Error| !matches!(why, Error::Unreachable { .. });
        match complaints.iter().find(is_lasting).or(complaints.first()) {
            Some(why) if !serves => Err(why.clone()),
            Some(_) | None => Ok(complaints),
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
