//! ValidateVolumeCapabilities: "no" is an answer here, not an error (VC-04).

use std::collections::BTreeMap;

use orlop_engine::request::Validate;
use orlop_model::{Error, Result, VolumeParameters};

use super::Controller;
use crate::executor::Subject;
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use crate::reply::{LONGEST_TEXT, shortened};
use crate::{parse, services};

impl Controller {
    pub(in crate::services) async fn validate_volume_capabilities(
        &self,
        mut request: v1::ValidateVolumeCapabilitiesRequest,
    ) -> Result<v1::ValidateVolumeCapabilitiesResponse> {
        services::note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("volume_capabilities", !request.volume_capabilities.is_empty()),
        ])?;
        parse::discard_secrets(std::mem::take(&mut request.secrets))?;
        let context = parse::volume_context(request.volume_context.clone())?;
        let capabilities = parse::capability_set_to_validate(request.volume_capabilities.clone())?;
        let parameters = check_parameters(&request, &self.features);
        let volume = parse::volume_id("volume_id", &request.volume_id)?;

        let verdict = self
            .executor
            .run(Subject::Pool(volume.pool().clone()), move |engine| {
                // Does it exist at all? That comes before any "no" (VC-10).
                engine.volume_status(&volume)?;
                let (capabilities, parameters) = match (capabilities, parameters) {
                    (Ok(capabilities), Ok(parameters)) => (capabilities, parameters),
                    (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
                };
                engine.validate(&Validate { volume, capabilities, context, parameters })
            })
            .await?;
        Ok(match verdict {
            Ok(_) => confirmed(request),
            Err(reason) => v1::ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: shortened(&reason, LONGEST_TEXT),
            },
        })
    }
}

/// The parameters to compare with the volume's, if any were given; mutable ones are checked for
/// being legal, as they change during a volume's life.
fn check_parameters(
    request: &v1::ValidateVolumeCapabilitiesRequest,
    features: &Features,
) -> std::result::Result<Option<VolumeParameters>, String> {
    let text = |error: Error| error.to_string();
    parse::mutable_parameters(&request.mutable_parameters, features).map_err(text)?;
    let given = Some(&request.parameters).filter(|map: &&BTreeMap<_, _>| !map.is_empty());
    let parsed = given.map(|map| parse::volume_parameters(map, features)).transpose();
    Ok(parsed.map_err(text)?.map(|(parameters, _)| parameters))
}

/// VC-07: everything in the request was checked, so everything comes back.
fn confirmed(
    request: v1::ValidateVolumeCapabilitiesRequest,
) -> v1::ValidateVolumeCapabilitiesResponse {
    v1::ValidateVolumeCapabilitiesResponse {
        confirmed: Some(Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        }),
        message: String::new(),
    }
}
