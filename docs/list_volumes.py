"""usage: list_volumes.py SOCKET; needs grpcio and grpcio-reflection, and no file of the protocol"""
import sys, grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

with grpc.insecure_channel("unix://" + sys.argv[1]) as channel:
    known = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    def call(service, method, **fields):
        found = known.FindServiceByName(service).FindMethodByName(method)
        request, reply = map(message_factory.GetMessageClass, (found.input_type, found.output_type))
        rpc = channel.unary_unary(f"/{service}/{method}", request.SerializeToString, reply.FromString)
        return rpc(request(**fields))
    volumes = call("csi.v1.Controller", "ListVolumes").entries
    print(f"{call('csi.v1.Identity', 'GetPluginInfo').name}: {len(volumes)} volumes")
    for entry in volumes:
        print(entry.volume.volume_id, entry.volume.capacity_bytes)
