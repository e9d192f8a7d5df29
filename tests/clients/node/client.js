// One volume, from its creation to its deletion, through @grpc/grpc-js.
//
// usage: client.js PROTO SOCKET DIRECTORY NAME

const { execFileSync } = require("child_process");
const fs = require("fs");
const path = require("path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [proto, socket, directory, name] = process.argv.slice(2);
const staging = path.join(directory, "staging");
const target = path.join(directory, "target");

const definition = loader.loadSync(path.join(proto, "csi.proto"), { keepCase: true });
const csi = grpc.loadPackageDefinition(definition).csi.v1;

function service(kind) {
    const client = new csi[kind](`unix://${socket}`, grpc.credentials.createInsecure());
    return (method, request) =>
        new Promise((done, failed) => {
            client[method](request, (error, answer) => (error ? failed(error) : done(answer)));
        });
}

async function main() {
    const capability = { mount: { fs_type: "ext4" }, access_mode: { mode: "SINGLE_NODE_WRITER" } };
    const controller = service("Controller");
    const node = service("Node");
    await service("Identity")("Probe", {});
    const created = await controller("CreateVolume", {
        name,
        capacity_range: { required_bytes: 64 << 20 },
        volume_capabilities: [capability],
    });
    const ids = { volume_id: created.volume.volume_id };
    const staged = { ...ids, staging_target_path: staging };
    await node("NodeStageVolume", { ...staged, volume_capability: capability });
    await node("NodePublishVolume", {
        ...staged,
        target_path: target,
        volume_capability: capability,
    });
    execFileSync("mountpoint", ["--quiet", target]);
    fs.writeFileSync(path.join(target, "file"), "written");
    await node("NodeUnpublishVolume", { ...ids, target_path: target });
    await node("NodeUnstageVolume", staged);
    await controller("DeleteVolume", ids);
}

main().then(
    () => process.exit(0),
    (error) => {
        console.error(error);
        process.exit(1);
    },
);
