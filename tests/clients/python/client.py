"""One volume, from its creation to its deletion, through Python's grpcio, which is the C core.

usage: client.py PROTO SOCKET DIRECTORY NAME
"""

import importlib
import os
import sys
import tempfile

import grpc
import grpc_tools
from grpc_tools import protoc

proto, socket, directory, name = sys.argv[1:]
staging, target = os.path.join(directory, "staging"), os.path.join(directory, "target")

stubs = tempfile.TemporaryDirectory()
well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
arguments = ["", "--proto_path", proto, "--proto_path", well_known]
arguments += ["--python_out", stubs.name, "--grpc_python_out", stubs.name, "csi.proto"]
if protoc.main(arguments) != 0:
    sys.exit("cannot compile csi.proto")
sys.path.insert(0, stubs.name)
csi = importlib.import_module("csi_pb2")
services = importlib.import_module("csi_pb2_grpc")

capability = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=csi.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"),
)

with grpc.insecure_channel("unix://" + socket) as channel:
    controller, node = services.ControllerStub(channel), services.NodeStub(channel)
    services.IdentityStub(channel).Probe(csi.ProbeRequest())
    created = controller.CreateVolume(
        csi.CreateVolumeRequest(
            name=name,
            capacity_range=csi.CapacityRange(required_bytes=64 << 20),
            volume_capabilities=[capability],
        )
    )
    volume = created.volume.volume_id
    node.NodeStageVolume(
        csi.NodeStageVolumeRequest(
            volume_id=volume, staging_target_path=staging, volume_capability=capability
        )
    )
    node.NodePublishVolume(
        csi.NodePublishVolumeRequest(
            volume_id=volume,
            staging_target_path=staging,
            target_path=target,
            volume_capability=capability,
        )
    )
    assert os.path.ismount(target), "nothing is mounted at the target"
    with open(os.path.join(target, "file"), "w") as file:
        file.write("written")
    node.NodeUnpublishVolume(
        csi.NodeUnpublishVolumeRequest(volume_id=volume, target_path=target)
    )
    node.NodeUnstageVolume(
        csi.NodeUnstageVolumeRequest(volume_id=volume, staging_target_path=staging)
    )
    controller.DeleteVolume(csi.DeleteVolumeRequest(volume_id=volume))
