//! CreateVolume.

use tonic::Code;

use crate::check::{Chapter, Check, Outcome, Service, check, run};
use crate::need::Need;
use crate::trial::Trial;
use crate::wire::csi::v1::CreateVolumeRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "CreateVolume",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "create-volume-twice",
        "creates a volume twice and gets the same one",
        &["CV-01", "CV-02", "CV-03", "CV-31"],
        run!(twice),
    ),
    check("create-volume-without-name", "leaves out the name", &["CV-05"], run!(without_name)),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn twice(t: &Trial) -> Outcome {
    let request = t.new_volume();
    let first = t.create(request.clone()).await?;
    let second = t.create(request).await?;
    t.expect(first.volume_id == second.volume_id, "the same volume_id again")
}

async fn without_name(t: &Trial) -> Outcome {
    let request = CreateVolumeRequest { name: String::new(), ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}
