# One volume, from its creation to its deletion, through Debian's ruby-grpc: the C core, years older
# than Python's.
#
# usage: client.rb PROTO SOCKET DIRECTORY NAME

require "grpc"
require "tmpdir"

proto, socket, directory, name = ARGV
staging = File.join(directory, "staging")
target = File.join(directory, "target")

Dir.mktmpdir do |stubs|
  system("protoc", "--proto_path", proto, "--ruby_out", stubs, "csi.proto", exception: true)
  require File.join(stubs, "csi_pb.rb")
end

# The plugin that generates services is another package; without one, a call is a path.
Stub = GRPC::ClientStub.new("unix://#{socket}", :this_channel_is_insecure)

def call(service, method, request)
  answer = Csi::V1.const_get("#{method}Response")
  path = "/csi.v1.#{service}/#{method}"
  request_class = Csi::V1.const_get("#{method}Request")
  encode = ->(message) { request_class.encode(message) }
  Stub.request_response(path, request_class.new(**request), encode, ->(bytes) { answer.decode(bytes) })
end

capability = Csi::V1::VolumeCapability.new(
  mount: Csi::V1::VolumeCapability::MountVolume.new(fs_type: "ext4"),
  access_mode: Csi::V1::VolumeCapability::AccessMode.new(mode: :SINGLE_NODE_WRITER)
)
size = Csi::V1::CapacityRange.new(required_bytes: 64 << 20)

call("Identity", "Probe", {})
created = call("Controller", "CreateVolume",
               { name: name, capacity_range: size, volume_capabilities: [capability] })
ids = { volume_id: created.volume.volume_id }
staged = ids.merge(staging_target_path: staging)
call("Node", "NodeStageVolume", staged.merge(volume_capability: capability))
call("Node", "NodePublishVolume", staged.merge(target_path: target, volume_capability: capability))
system("mountpoint", "--quiet", target, exception: true)
File.write(File.join(target, "file"), "written")
call("Node", "NodeUnpublishVolume", ids.merge(target_path: target))
call("Node", "NodeUnstageVolume", staged)
call("Controller", "DeleteVolume", ids)
