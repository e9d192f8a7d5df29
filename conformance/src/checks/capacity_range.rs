//! CapacityRange (CR).

use tonic::Code;

use crate::capability::block;
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ExpandVolume,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest};

pub(super) const SECTION: Section = Section {
    title: "CapacityRange",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "range-without-a-size",
        "sends a range with neither size when creating and expanding",
        &["CR-01"],
        run!(without_a_size),
    ),
    check(
        "range-with-a-negative-size",
        "sends negative sizes when creating and expanding",
        &["CR-02"],
        run!(negative),
    ),
    check(
        "range-with-one-size",
        "sends only required_bytes, and only limit_bytes",
        &["CR-03"],
        run!(one_size),
    ),
    check(
        "range-is-met",
        "creates volumes with required_bytes and with limit_bytes and reads their capacity",
        &["CR-04", "CR-05"],
        run!(is_met),
    ),
    check(
        "range-is-met-by-the-device",
        "measures the device of a volume that was asked for with a range",
        &["CR-04", "CR-05"],
        run!(is_met_by_the_device),
    )
    .needs(&[Need::NodeService, Need::BlockAccess, Need::LocalFiles]),
    check(
        "range-of-one-exact-size",
        "asks for exactly one size, and for exactly an odd number of bytes",
        &["CR-06"],
        run!(exact_size),
    ),
    check(
        "range-upside-down",
        "sends a limit_bytes below required_bytes when creating and expanding",
        &["CR-07"],
        run!(upside_down),
    ),
    check(
        "range-too-narrow-for-rounding",
        "asks for 1 MiB + 1 byte, and for a size that is hardly a whole one, and no more",
        &["CR-08"],
        run!(too_narrow),
    ),
];

fn asking(t: &CheckContext, capacity_range: Option<CapacityRange>) -> CreateVolumeRequest {
    CreateVolumeRequest { capacity_range, ..t.new_volume() }
}

/// When creating, and when expanding what was created in another way.
async fn refused(t: &CheckContext, range: Option<CapacityRange>, codes: &[Code]) -> Outcome {
    t.refused_with(asking(t, range), codes).await?;
    if t.features().has_controller(ExpandVolume) {
        let volume = t.volume().await?;
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.volume_id,
            capacity_range: range,
            secrets: t.secrets(),
            volume_capability: Some(t.capability()),
        };
        t.refused_with(request, codes).await?;
    }
    Ok(())
}

async fn without_a_size(t: &CheckContext) -> Outcome {
    refused(t, t.range(0, 0), &[Code::InvalidArgument]).await
}

async fn negative(t: &CheckContext) -> Outcome {
    refused(t, t.range(-1, 0), &[Code::InvalidArgument, Code::OutOfRange]).await?;
    refused(t, t.range(0, -1), &[Code::InvalidArgument, Code::OutOfRange]).await
}

async fn upside_down(t: &CheckContext) -> Outcome {
    let range = t.range(2 * t.size(), t.size());
    refused(t, range, &[Code::InvalidArgument, Code::OutOfRange]).await
}

async fn one_size(t: &CheckContext) -> Outcome {
    let volume = t.create(asking(t, t.range(t.size(), 0))).await?;
    // 0 here is the plugin's "unknown", not ours.
    let known = volume.capacity_bytes != 0;
    t.expect(!known || volume.capacity_bytes >= t.size(), "no limit where none is given")?;
    t.create(asking(t, t.range(0, 2 * t.size()))).await?;
    Ok(())
}

async fn is_met(t: &CheckContext) -> Outcome {
    // Not a round number: what is rounded down is too small.
    let odd = t.size() + 4097;
    for (required, limit) in [(t.size(), 0), (odd, 0), (odd, 2 * t.size()), (0, t.size())] {
        let volume = t.create(asking(t, t.range(required, limit))).await?;
        let bytes = volume.capacity_bytes;
        if bytes == 0 {
            continue;
        }
        blamed("CR-04", t.expect(bytes >= required, format!("at least {required} bytes")))?;
        blamed("CR-05", t.expect(limit == 0 || bytes <= limit, format!("at most {limit} bytes")))?;
    }
    Ok(())
}

async fn is_met_by_the_device(t: &CheckContext) -> Outcome {
    let capability = block(Mode::SingleNodeWriter);
    let (required, limit) = (t.size() + 4097, 2 * t.size());
    let request = CreateVolumeRequest {
        capacity_range: t.range(required, limit),
        ..t.new_volume_for(capability.clone())
    };
    let volume = t.create(request).await?;
    let placed = t.placed(&volume, capability).await?;
    let bytes = t.device_size(&placed.target_path())?;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let large = format!("a device of at least {required} bytes, not {bytes}");
    blamed("CR-04", t.expect(bytes >= required, large))?;
    let small = format!("a device of at most {limit} bytes, not {bytes}");
    blamed("CR-05", t.expect(bytes <= limit, small))?;
    t.withdrawn(&placed).await
}

/// That size, or a refusal because it cannot be had.
async fn exactly(t: &CheckContext, size: i64) -> Outcome {
    match t.settled(asking(t, t.range(size, size))).await? {
        Ok(reply) => {
            let bytes = t.some(reply.volume, "a volume in the reply")?.capacity_bytes;
            t.expect(bytes == 0 || bytes == size, format!("exactly {size} bytes"))
        }
        Err(status) => t.expect(status.code() == Code::OutOfRange, "OK or OUT_OF_RANGE"),
    }
}

async fn exact_size(t: &CheckContext) -> Outcome {
    exactly(t, t.size()).await?;
    exactly(t, t.size() + 1).await
}

async fn too_narrow(t: &CheckContext) -> Outcome {
    exactly(t, (1 << 20) + 1).await?;
    exactly(t, t.size() - 1).await
}
