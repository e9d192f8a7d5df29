//! Volumes and capabilities that are special in some way, where the plugin has such a thing.

use tonic::Code;

use super::CheckContext;
use crate::capability::{block, in_mode, is_block, mount};
use crate::check::{Outcome, optional};
use crate::options::Pairs;
use crate::wire::csi::v1::volume_capability::AccessMode;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    CreateVolumeRequest, ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
};

impl CheckContext {
    /// A volume that a plugin may well not be able to make; then the check does not apply.
    pub async fn volume_if_made(
        &self,
        request: CreateVolumeRequest,
        what: &str,
    ) -> Outcome<Volume> {
        match self.settled(request).await? {
            Ok(reply) => self.some(reply.volume, "a volume in the reply"),
            Err(status) if status.code() == Code::InvalidArgument => {
                self.not_applicable(format!("the plugin makes no volume {what}"))
            }
            Err(_) => Err(self.failed("OK, or INVALID_ARGUMENT if it has no such volumes")),
        }
    }

    pub async fn volume_in(&self, capability: &VolumeCapability) -> Outcome<Volume> {
        let mode = capability.access_mode.as_ref().map_or(Mode::Unknown, AccessMode::mode);
        let what = format!("with {}", mode.as_str_name());
        self.volume_if_made(self.new_volume_for(capability.clone()), &what).await
    }

    /// In the first of these modes that the plugin has.
    pub async fn volume_in_any(
        &self,
        capability: &VolumeCapability,
        modes: &[Mode],
    ) -> Outcome<(Volume, VolumeCapability)> {
        for mode in modes {
            let capability = in_mode(capability, *mode);
            if let Some(volume) = optional(self.volume_in(&capability).await)? {
                return Ok((volume, capability));
            }
        }
        let names: Vec<_> = modes.iter().map(Mode::as_str_name).collect();
        self.not_applicable(format!("the plugin makes no volume with {}", names.join(" or ")))
    }

    pub async fn volume_in_mode(&self, mode: Mode) -> Outcome<(Volume, VolumeCapability)> {
        self.volume_in_any(&self.quick_capability(), &[mode]).await
    }

    /// A volume that can be mounted and be used as a device.
    pub async fn volume_for_both(&self) -> Outcome<Volume> {
        let request = CreateVolumeRequest {
            volume_capabilities: self.capabilities(Mode::SingleNodeWriter),
            ..self.new_volume()
        };
        self.volume_if_made(request, "for both access types").await
    }

    /// A capability that, as the plugin itself says, the volume does not have.
    pub async fn beyond(
        &self,
        volume: &Volume,
        made_for: &VolumeCapability,
    ) -> Outcome<VolumeCapability> {
        let mode = Mode::SingleNodeWriter;
        let other_type = if is_block(made_for) { mount(mode) } else { block(mode) };
        for wanted in [other_type, in_mode(made_for, Mode::MultiNodeMultiWriter)] {
            let request = ValidateVolumeCapabilitiesRequest {
                volume_capabilities: vec![wanted.clone()],
                ..self.validate(volume)
            };
            match self.settled(request).await? {
                Ok(reply) if reply.confirmed.is_some() => {}
                Ok(_) | Err(_) => return Ok(wanted),
            }
        }
        self.not_applicable("the volume can be used in every way that was tried")
    }

    /// The volume's context with one thing changed.
    pub fn other_context(&self, volume: &Volume) -> Outcome<Pairs> {
        let mut context = volume.volume_context.clone();
        match context.values_mut().next() {
            Some(value) => value.push_str("-other"),
            None => return self.not_applicable("its volumes have no volume_context"),
        }
        Ok(context)
    }
}
