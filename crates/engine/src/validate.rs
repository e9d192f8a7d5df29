//! ValidateVolumeCapabilities.

use orlop_model::Result;

use crate::engine::Engine;
use crate::request::{Validate, Volume, context_fits};

impl Engine {
    /// The inner error says in one sentence why the capabilities are not confirmed.
    pub fn validate(&self, request: &Validate) -> Result<std::result::Result<Volume, String>> {
        let (pool, record) = self.require_volume(&request.volume)?;
        if !context_fits(pool, &record, &request.context) {
            return Ok(Err("volume_context is not that of the volume".to_owned()));
        }
        if request.parameters.as_ref().is_some_and(|given| *given != record.parameters) {
            return Ok(Err("the volume was made with other parameters".to_owned()));
        }
        for wanted in request.capabilities.iter() {
            if let Err(reason) = record.capabilities.check_grants(wanted) {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(Volume::of(pool, record)))
    }
}
