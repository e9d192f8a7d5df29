//! GetCapacity.

use orlop_engine::request::CapacityQuery;
use orlop_model::Result;

use super::Controller;
use crate::dispatch::Subject;
use crate::proto::csi::v1;
use crate::{parse, reply};

impl Controller {
    pub(in crate::services) async fn get_capacity(
        &self,
        request: v1::GetCapacityRequest,
    ) -> Result<v1::GetCapacityResponse> {
        let query = parse_query(request)?;
        let capacity = self.core.run(Subject::Any, move |engine| engine.capacity(&query)).await?;
        Ok(v1::GetCapacityResponse {
            available_capacity: reply::bytes(capacity.available),
            maximum_volume_size: Some(reply::bytes(capacity.maximum_volume)),
            minimum_volume_size: Some(reply::bytes(capacity.minimum_volume)),
        })
    }
}

fn parse_query(request: v1::GetCapacityRequest) -> Result<CapacityQuery> {
    let place = request
        .accessible_topology
        .map(|topology| parse::place("accessible_topology", topology))
        .transpose()?;
    let capabilities = Some(request.volume_capabilities)
        .filter(|capabilities| !capabilities.is_empty())
        .map(parse::capability_set)
        .transpose()?;
    let parameters = parse::capacity_parameters(&request.parameters)?;
    Ok(CapacityQuery { capabilities, parameters, place })
}
