//! What it costs that a call is carried to another daemon: the same calls at the socket of the node, and at
//! the socket of a router before it, in turns. A second node is there, as it has to be asked for names.

use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::delta;

const VOLUME: u64 = 64 * MIB;
const NODES: [&str; 2] = ["node-a", "node-b"];

pub(crate) async fn run(runs: usize) {
    let authority = Authority::new();
    let mut rng = Rng::new();
    let network = format!("127.{}.{}", rng.u8(1..255), rng.u8(1..255));
    let peers = format!("{network}.1:7420,{network}.2:7420");
    let launch = |launch: Launch, node: &str| {
        let files = authority.issue(node, &launch.scratch().ensure_dir("tls"));
        let launch = launch.env("ORLOP_NODE_ID", node).env("ORLOP_LOG", "warn");
        files.into_iter().fold(launch, |launch, (variable, path)| launch.env(variable, path))
    };
    let mut nodes = Vec::new();
    for (number, node) in NODES.iter().enumerate() {
        let pool = TestPool::new(PoolFs::Xfs, 64 * GIB);
        let address = format!("{network}.{}:7420", number + 1);
        let daemon = launch(Launch::on(&pool), node).env("ORLOP_PEER_LISTEN", address);
        nodes.push((daemon.start().await, pool));
    }
    let router = launch(Launch::without_pool(), "router")
        .env("ORLOP_MODE", "router")
        .env("ORLOP_PEERS", peers);
    let router = router.start().await;
    let (direct, carried) = (nodes[0].0.client(), router.client());
    while carried.list_volumes().await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{:<24} {:>12} {:>12} {:>8}", "call", "node ms", "router ms", "ratio");
    let mut turns = Turns { direct: &direct, carried: &carried, runs };
    turns.measure("Probe", async |client, _| client.probe().await.map(drop)).await;
    let volume = create(&direct, "volume").await.unwrap();
    let id = volume.volume_id.clone();
    turns
        .measure("ControllerGetVolume", async |client, _| client.get_volume(&id).await.map(drop))
        .await;
    turns
        .measure("CreateVolume", async |client, number| {
            create(client, &format!("volume-{number}")).await.map(drop)
        })
        .await;
    let base = direct.snapshot("base", &id).await.unwrap().snapshot_id;
    let target = direct.snapshot("target", &id).await.unwrap().snapshot_id;
    turns
        .measure("GetMetadataDelta", async |client, _| {
            delta::delta(client, &base, &target).await;
            Ok(())
        })
        .await;
}

async fn create(client: &Client, name: &str) -> Answer<v1::Volume> {
    let segments = [("csi.orlop.io/node".to_owned(), NODES[0].to_owned())].into();
    let place = v1::Topology { segments };
    let mut create = client.create(name).size(VOLUME).block();
    create.request.accessibility_requirements =
        Some(v1::TopologyRequirement { requisite: vec![place.clone()], preferred: vec![place] });
    create.send().await
}

struct Turns<'a> {
    direct: &'a Client,
    carried: &'a Client,
    runs: usize,
}

impl Turns<'_> {
    async fn measure(
        &mut self,
        name: &str,
        mut call: impl AsyncFnMut(&Client, usize) -> Answer<()>,
    ) {
        let mut times = [Vec::new(), Vec::new()];
        for run in 0..self.runs {
            for (way, client) in [self.direct, self.carried].into_iter().enumerate() {
                let began = Instant::now();
                call(client, 2 * run + way).await.expect("a good answer");
                times[way].push(began.elapsed());
            }
        }
        let [direct, carried] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64() * 1000.0
        });
        println!("{name:<24} {direct:>12.3} {carried:>12.3} {:>8.2}", carried / direct);
    }
}
