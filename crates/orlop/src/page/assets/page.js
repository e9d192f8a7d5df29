// What is asked of the daemon, and where the answers go. Nothing but the choice of colours is kept in the browser.

import { age, amount, bytes, charts, element, isolated, meter, moment, poolBars, sparklines, strip, verdict } from "/draw.js";

const COUNT = 25;
const at = (id) => document.getElementById(id);

const state = { overview: null, list: null, one: null, start: 0, token: null, chosen: null };

// --- asking ----------------------------------------------------------------------------------------

async function ask(path, options = {}) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(16000), cache: "no-store", credentials: "omit", ...options });
  const text = await answer.text();
  let body = null;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    body = { error: "the answer is not JSON" };
  }
  if (!answer.ok) throw Object.assign(new Error(body?.error ?? `status ${answer.status}`), { status: answer.status });
  return { status: answer.status, body };
}

const change = (path, body) =>
  ask(path, {
    method: "POST",
    headers: { Authorization: `Bearer ${state.token}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

function reached(error) {
  const banner = at("offline");
  if (!error) {
    banner.hidden = true;
    document.body.classList.remove("stale");
    at("updated").textContent = `as of ${new Date().toLocaleTimeString()}`;
    return;
  }
  const words = error.status ? error.message : "The daemon does not answer. What is shown is from before.";
  if (banner.hidden || banner.textContent !== words) banner.textContent = words;
  banner.hidden = false;
  document.body.classList.toggle("stale", !error.status);
}

function note(text, isWrong = false) {
  at("notice").classList.toggle("wrong", isWrong);
  at("notice").textContent = text;
}

// What has the focus keeps it when its part is drawn again.
function put(id, ...children) {
  const place = at(id);
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  place.replaceChildren(...children);
  if (key) place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// --- everything --------------------------------------------------------------------------------------

function showOverview(overview) {
  at("identity").replaceChildren(isolated(overview.node), ` · ${overview.driver} ${overview.version}${overview.mode === "all" ? "" : ` · ${overview.mode}`}`);
  at("unlock").hidden = !overview.changes;
  put("attention", attention(overview));
  put("pools", ...pools(overview));
  at("volumes-section").hidden = overview.pools.length === 0;
  // A node that only listens for its peers knows none.
  const knowsPeers = overview.peers !== null && (overview.mode === "router" || overview.peers.nodes.length + overview.peers.silent.length > 0);
  at("nodes-section").hidden = !knowsPeers;
  if (knowsPeers) put("nodes", nodes(overview.peers));
  choosePools(overview.pools);
}

function attention(overview) {
  const found = [];
  const add = (word, name, ...says) => found.push(element("li", {}, verdict(word), element("span", { class: "says" }, element("strong", {}, ...name), " ", ...says)));
  for (const pool of overview.pools) {
    if (pool.problem) add(pool.state, ["Pool ", isolated(pool.name)], pool.problem);
    const abnormal = pool.objects?.abnormal_volumes ?? 0;
    if (abnormal > 0 && pool.state === "up") {
      const lost = pool.objects.with_lost_writes;
      const link = element("a", { href: "#/abnormal", "data-key": `abnormal-${pool.name}` }, "Show them");
      add("abnormal", ["Pool ", isolated(pool.name)], `${amount(abnormal, "volume has a problem", "volumes have problems")}${lost > 0 ? `, ${lost} of them lost writes` : ""}. `, link);
    }
    const broken = pool.objects?.abnormal_snapshots ?? 0;
    if (broken > 0) add("abnormal", ["Pool ", isolated(pool.name)], `${amount(broken, "snapshot")} cannot be restored; `, element("code", {}, "orlop doctor"), " says why.");
  }
  for (const node of overview.peers?.nodes ?? []) {
    if (!node.answers) add("away", ["Node ", isolated(node.node)], node.why ?? "");
  }
  for (const silent of overview.peers?.silent ?? []) add("away", ["Address ", isolated(silent.address)], `has not answered yet: ${silent.why}`);
  if (found.length === 0) return element("p", {}, verdict("normal"), " Nothing needs attention.");
  return element("ul", { class: "findings" }, ...found);
}

function pools(overview) {
  if (overview.pools.length === 0) {
    return [element("p", { class: "quiet" }, "This daemon has no pool: it carries calls to the nodes below, each of which has the page of its pools.")];
  }
  return overview.pools.map((pool) => {
    const counts = pool.objects
      ? `${amount(pool.objects.normal_volumes + pool.objects.abnormal_volumes, "volume")}, ${amount(pool.objects.snapshots, "snapshot")}`
      : "";
    const head = element("header", {}, element("h3", {}, isolated(pool.name)), verdict(pool.state), element("p", { class: "quiet" }, counts));
    const inside = pool.space ? poolBars(pool.space) : [element("p", {}, pool.problem ?? "Nothing is known of it.")];
    return element("article", { class: "card" }, head, ...inside);
  });
}

function nodes(peers) {
  const row = (node) =>
    element(
      "tr", {},
      element("th", { scope: "row" }, isolated(node.node)),
      element("td", { "data-label": "State" }, element("div", {}, verdict(node.answers ? "answers" : "away"), node.why ? element("span", { class: "says" }, node.why) : null)),
      element("td", { "data-label": "Pools" }, element("div", {}, ...poolNames(node))),
    );
  const table = element(
    "table", {},
    element("caption", {}, "Nodes of the cluster"),
    element("thead", {}, element("tr", {}, ...["Node", "State", "Pools"].map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...peers.nodes.map(row)),
  );
  const parts = [table];
  if (peers.certificate_expiry) {
    const days = Math.floor((peers.certificate_expiry - Date.now() / 1000) / 86400);
    parts.push(element("p", { class: "quiet hint" }, `The certificate of this daemon expires in ${amount(days, "day")}.`));
  }
  return element("div", {}, ...(peers.nodes.length > 0 ? parts : [element("p", { class: "quiet" }, "No other daemon has been seen yet.")]));
}

function poolNames(node) {
  const names = node.pools.flatMap((pool, index) => [index > 0 ? ", " : "", isolated(pool.name), ` (${pool.id})`]);
  if (!node.is_complete) names.push(names.length > 0 ? ", and others that it cannot name yet" : "not known yet");
  return names.length > 0 ? names : ["none"];
}

function choosePools(all) {
  const choice = at("pool-filter");
  at("pool-choice").hidden = all.length < 2;
  const known = [...choice.options].slice(1).map((option) => option.value);
  const names = all.map((pool) => pool.name);
  if (known.join("\n") === names.join("\n")) return;
  const chosen = choice.value;
  choice.replaceChildren(element("option", { value: "" }, "all"), ...names.map((name) => element("option", { value: name }, name)));
  choice.value = names.includes(chosen) ? chosen : "";
}

// --- volumes -----------------------------------------------------------------------------------------

const title = (volume) => volume.name ?? volume.id;

function showVolumes(list) {
  const narrowed = list.matching !== list.total;
  const count = narrowed ? `${list.matching.toLocaleString("en")} of ${amount(list.total, "volume")}` : amount(list.total, "volume");
  if (at("count").textContent !== count) at("count").textContent = count;
  const parts = list.incomplete.map((it) => element("p", { class: "wrong" }, "Pool ", isolated(it.pool), `: ${it.why}`));
  if (list.volumes.length > 0) parts.push(volumeTable(list.volumes));
  else parts.push(element("p", { class: "quiet" }, narrowed ? "None is as asked for." : "There is none yet. `orlop volume create` makes one."));
  put("volumes", ...parts);
  const end = list.start + list.volumes.length;
  at("pages").hidden = list.matching <= COUNT;
  at("range").textContent = `${list.start + 1} to ${end} of ${list.matching.toLocaleString("en")}`;
  at("before").disabled = list.start === 0;
  at("after").disabled = end >= list.matching;
}

function volumeTable(volumes) {
  const heads = [["Volume"], ["Health"], ["Size", "number"], ["Activity"], ["Snapshots", "number"], ["Pool"], ["Published to"]];
  return element(
    "table", {},
    element("caption", {}, "Volumes"),
    element("thead", {}, element("tr", {}, ...heads.map(([name, kind]) => element("th", { scope: "col", class: kind }, name)))),
    element("tbody", {}, ...volumes.map(volumeRow)),
  );
}

function volumeRow(volume) {
  const isNormal = volume.health.verdict === "normal";
  const size = volume.size_bytes === null ? ["–"] : [bytes(volume.size_bytes)];
  if (volume.used_bytes !== null) size.push(meter(volume.used_bytes, volume.size_bytes), element("span", { class: "says quiet" }, `${bytes(volume.used_bytes)} taken`));
  return element(
    "tr", {},
    element("th", { scope: "row" }, element("a", { href: `#/volume/${volume.id}`, "data-key": volume.id }, isolated(title(volume))), element("div", { class: "quiet id" }, volume.name === null ? "" : volume.id)),
    element("td", { "data-label": "Health" }, element("div", {}, verdict(volume.health.verdict), isNormal ? null : element("span", { class: "says" }, volume.health.message))),
    element("td", { "data-label": "Size", class: "number" }, element("div", {}, ...size)),
    element("td", { "data-label": "Activity" }, sparklines(volume.io)),
    element("td", { "data-label": "Snapshots", class: "number" }, volume.snapshots === null ? "unknown" : volume.snapshots.toLocaleString("en")),
    element("td", { "data-label": "Pool" }, isolated(volume.pool)),
    element("td", { "data-label": "Published to" }, volume.published.length > 0 ? isolated(volume.published.join(", ")) : element("span", { class: "quiet" }, "no node")),
  );
}

// --- one volume --------------------------------------------------------------------------------------

function showOne(details) {
  const { volume, copies } = details;
  const isNew = at("one-title").dataset.id !== volume.id;
  at("one-title").dataset.id = volume.id;
  at("one-title").replaceChildren(isolated(title(volume)));
  at("one-id").textContent = volume.id;
  document.title = `${title(volume)} · Orlop`;
  put("one-health", ...health(volume.health));
  put("one-facts", facts(volume, details.exclusive_bytes));
  at("activity-section").hidden = volume.state !== "present";
  put("one-activity", charts(volume.io));
  put("one-copies", ...tree(details));
  chooseSnapshots(copies.filter((copy) => copy.kind === "snapshot" && copy.parent === volume.id));
  at("change-section").hidden = !state.token || volume.state !== "present";
  if (isNew) {
    showStrip("");
    fillForms(volume);
    at("one-title").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function health(found) {
  const lines = found.problems.length > 1 ? found.problems : [];
  const first = found.message.charAt(0).toUpperCase() + found.message.slice(1);
  const parts = [element("p", {}, verdict(found.verdict), " ", first, ".")];
  if (found.problems.length === 1) parts[0].append(" ", element("code", {}, found.problems[0].reason));
  if (lines.length > 0) parts.push(element("ul", {}, ...lines.map((it) => element("li", {}, element("code", {}, it.reason), ` ${it.message}`))));
  return parts;
}

const LIMITS = [["readBytesPerSecond", "reading", (it) => `${bytes(it)}/s`], ["writeBytesPerSecond", "writing", (it) => `${bytes(it)}/s`], ["readIops", "reads", (it) => `${it.toLocaleString("en")}/s`], ["writeIops", "writes", (it) => `${it.toLocaleString("en")}/s`]];

function facts(volume, exclusive) {
  const shared = exclusive === null ? ", shared or not" : `, ${bytes(volume.used_bytes - exclusive)} of it shared`;
  const limits = LIMITS.filter(([name]) => volume.limits?.[name]).map(([name, word, unit]) => `${word} ${unit(volume.limits[name])}`);
  const source = volume.source ? [`${volume.source.kind} `, volume.source.kind === "volume" ? element("a", { href: `#/volume/${volume.source.id}`, "data-key": "source" }, volume.source.id) : element("span", { class: "id" }, volume.source.id)] : ["nothing"];
  const rows = [
    ["Pool", [isolated(volume.pool)]],
    ["Size", [bytes(volume.size_bytes)]],
    ["Takes", [volume.used_bytes === null ? "unknown" : `${bytes(volume.used_bytes)}${shared}`]],
    ["Filesystem", [volume.filesystem ?? "none: a raw device"]],
    ["Provisioning", [volume.provisioning ?? "unknown"]],
    ["Created", [volume.created === null ? "unknown" : moment(volume.created)]],
    ["Made from", source],
    ["Published to", [volume.published.length > 0 ? isolated(volume.published.join(", ")) : "no node"]],
    ["I/O limits", [limits.length > 0 ? limits.join(", ") : "none"]],
  ];
  if (volume.state !== "present") rows.splice(1);
  const list = element("dl", { class: "facts" });
  for (const [name, value] of rows) list.append(element("div", {}, element("dt", {}, name), element("dd", {}, ...value)));
  return list;
}

function tree({ volume, copies, is_truncated: isTruncated }) {
  if (copies.length === 0) return [element("p", { class: "quiet" }, "There is no snapshot and no copy of it.")];
  const children = new Map();
  for (const copy of copies) children.set(copy.parent, [...(children.get(copy.parent) ?? []), copy]);
  const known = new Set([volume.id, ...copies.map((copy) => copy.id)]);
  const seen = new Set();
  const branch = (parent) => {
    const items = (children.get(parent) ?? []).filter((copy) => !seen.has(copy.id));
    items.forEach((copy) => seen.add(copy.id));
    return items.map((copy) => leaf(copy, branch(copy.id)));
  };
  const items = branch(volume.id);
  // Where the list was cut, what some came from is missing.
  for (const parent of children.keys()) if (!known.has(parent)) items.push(...branch(parent));
  const parts = [element("ul", { class: "tree" }, ...items)];
  if (isTruncated) parts.unshift(element("p", { class: "wrong" }, "There are more; these are the newest, or the first that the cluster named."));
  const measured = copies.filter((copy) => copy.exclusive_bytes !== null);
  if (measured.length > 1) parts.push(element("p", { class: "quiet hint" }, "What two of them share with nothing else is given back with the second, so deleting several can give back more than their sum."));
  return parts;
}

const CONSISTENCY = { filesystem: "clean filesystem", crash: "as after a power cut", "crash-alone": "as after a power cut, not of one instant with its group" };

function leaf(copy, below) {
  const isSnapshot = copy.kind === "snapshot";
  const name = isSnapshot ? isolated(copy.name) : element("a", { href: `#/volume/${copy.id}`, "data-key": copy.id }, isolated(copy.name));
  const words = [moment(copy.created), ` · ${bytes(copy.size_bytes)}`];
  if (isSnapshot) words.push(` · ${CONSISTENCY[copy.consistency] ?? copy.consistency}`);
  if (copy.group) words.push(" · deleted with its group only");
  const gives = copy.exclusive_bytes === null ? ["what deleting it gives back is not known"] : ["deleting it gives back ", element("strong", {}, copy.exclusive_bytes === 0 ? "nothing" : bytes(copy.exclusive_bytes))];
  const line = element(
    "div", { class: "leaf" },
    element("span", { class: "what" }, isSnapshot ? "Snapshot" : "Volume"),
    element("span", { class: "name" }, name, " ", element("span", { class: "quiet" }, ...words)),
    element("span", { class: "gives says" }, ...gives),
  );
  return element("li", {}, line, below.length > 0 ? element("ul", {}, ...below) : null);
}

function chooseSnapshots(snapshots) {
  at("compare-section").hidden = snapshots.length === 0;
  const key = snapshots.map((snapshot) => snapshot.id).join();
  if (at("compare").dataset.known === key) return;
  at("compare").dataset.known = key;
  const option = (snapshot) => element("option", { value: snapshot.id }, `${snapshot.name}, ${age(snapshot.created)}`);
  at("base").replaceChildren(element("option", { value: "" }, "nothing: all data"), ...snapshots.map(option));
  at("target").replaceChildren(...snapshots.map(option));
  at("base").value = snapshots.at(-2)?.id ?? "";
  at("target").value = snapshots.at(-1)?.id ?? "";
}

let compared = 0;

async function compare(event) {
  event.preventDefault();
  compared += 1;
  const [mine, volume, target] = [compared, state.one.volume.id, at("target").value];
  // The answer about another volume, or to the question before, is not shown here.
  const isWanted = () => mine === compared && state.one?.volume.id === volume;
  showStrip("Comparing …");
  try {
    const query = new URLSearchParams({ base: at("base").value, target });
    const { body } = await ask(`/api/blocks?${query}`);
    if (!isWanted()) return;
    const { text, parts } = strip(body, state.one.copies.find((copy) => copy.id === target)?.size_bytes ?? 0);
    showStrip(text, ...parts);
  } catch (error) {
    if (isWanted()) showStrip(error.message);
  }
}

function showStrip(text, ...parts) {
  at("strip-text").textContent = text;
  at("strip").replaceChildren(...parts);
}

// --- changes -----------------------------------------------------------------------------------------

const MIB = 1024 * 1024;
const FIELDS = [["limit-read-bytes", "readBytesPerSecond", MIB], ["limit-write-bytes", "writeBytesPerSecond", MIB], ["limit-reads", "readIops", 1], ["limit-writes", "writeIops", 1]];

function fillForms(volume) {
  at("snapshot-name").value = `page-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`;
  for (const [field, name, unit] of FIELDS) {
    const limit = volume.limits?.[name];
    at(field).value = limit ? String(Number((limit / unit).toFixed(3))) : "";
    at(field).dataset.was = at(field).value;
  }
}

async function changed(path, body, done) {
  try {
    const { status } = await change(path, body);
    note(status === 202 ? "It is still under way; look again in a while." : done);
    await showHash();
    if (state.one) fillForms(state.one.volume);
  } catch (error) {
    if (error.status === 401) forget();
    note(error.message, true);
  }
}

function takeSnapshot(event) {
  event.preventDefault();
  const name = at("snapshot-name").value;
  changed("/api/snapshots", { volume: state.one.volume.id, name }, `The snapshot ${name} was taken.`);
}

function setLimits(event) {
  event.preventDefault();
  // A limit that was not touched stays as it is, to the byte.
  const touched = FIELDS.filter(([field]) => at(field).value !== at(field).dataset.was);
  const limits = Object.fromEntries(touched.map(([field, name, unit]) => [name, Math.round(Number(at(field).value || 0) * unit)]));
  if (touched.length === 0) note("The limits are as they were.");
  else changed("/api/limits", { volume: state.one.volume.id, limits }, "The limits are set.");
}

function forget() {
  state.token = null;
  at("unlock").textContent = "Allow changes";
  at("change-section").hidden = true;
}

async function allow(event) {
  event.preventDefault();
  state.token = at("token").value.trim();
  try {
    await change("/api/token", {});
    at("token-dialog").close();
    at("unlock").textContent = "Forbid changes";
    at("change-section").hidden = state.one?.volume.state !== "present";
    note(state.chosen ? "Changes are allowed until the page is closed." : "Changes are allowed until the page is closed. Choose a volume.");
  } catch (error) {
    state.token = null;
    at("token-error").textContent = error.message;
  }
  at("token").value = "";
}

function openDialog() {
  if (state.token) {
    forget();
    note("Changes are forbidden again.");
    return;
  }
  at("token-error").textContent = "";
  at("token-dialog").showModal();
}

// --- colours -----------------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"];

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  at("theme").textContent = `Theme: ${theme}`;
}

function storedTheme(value) {
  try {
    if (value) localStorage.setItem("orlop-theme", value);
    return localStorage.getItem("orlop-theme");
  } catch {
    return null;
  }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  setTheme(next);
  storedTheme(next);
}

// --- what is asked for when ----------------------------------------------------------------------------

async function loadOverview() {
  const { body } = await ask("/api/overview");
  state.overview = body;
  showOverview(body);
}

let asked = 0;

async function loadVolumes() {
  asked += 1;
  const mine = asked;
  const query = new URLSearchParams({ search: at("search").value, pool: at("pool-filter").value, start: state.start, count: COUNT });
  if (at("abnormal").checked) query.set("abnormal", "1");
  const { body } = await ask(`/api/volumes?${query}`);
  // An answer that was overtaken by the next is of no use.
  if (mine !== asked) return;
  if (body.volumes.length === 0 && body.start > 0 && body.matching > 0) {
    state.start = 0;
    await loadVolumes();
    return;
  }
  state.list = body;
  showVolumes(body);
}

async function loadOne() {
  const wanted = state.chosen;
  try {
    const { body } = await ask(`/api/volumes/${encodeURIComponent(wanted)}`);
    if (state.chosen !== wanted) return;
    state.one = body;
    showOne(body);
  } catch (error) {
    if (state.chosen === wanted && state.one?.volume.id !== wanted) showNothing(wanted);
    throw error;
  }
}

// Of the volume before, nothing must stay.
function showNothing(id) {
  state.one = null;
  at("one-title").dataset.id = "";
  at("one-title").textContent = id;
  at("one-id").textContent = "";
  for (const part of ["one-health", "one-facts", "one-activity", "one-copies"]) at(part).replaceChildren();
  for (const part of ["activity-section", "compare-section", "change-section"]) at(part).hidden = true;
}

async function attempt(...loads) {
  let failure = null;
  for (const load of loads) {
    try {
      await load();
    } catch (error) {
      failure ??= error;
    }
  }
  reached(failure);
}

// A link from elsewhere may end in anything.
function volumeOf(hash) {
  if (!hash.startsWith("#/volume/")) return null;
  const id = hash.slice("#/volume/".length);
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

async function showHash() {
  const hash = location.hash;
  const id = volumeOf(hash);
  const wasOne = state.chosen !== null;
  state.chosen = id;
  if (hash === "#/abnormal") {
    at("abnormal").checked = true;
    state.start = 0;
    history.replaceState(null, "", "#/");
  }
  at("everything").hidden = id !== null;
  at("one").hidden = id === null;
  if (id === null) {
    state.one = null;
    at("one-title").dataset.id = "";
    document.title = "Orlop";
    if (wasOne) at("main").focus({ preventScroll: true });
    await attempt(loadVolumes);
    if (hash === "#/abnormal") at("volumes-title").scrollIntoView();
  } else {
    // Its answer may take long, and what is done until then must not be done to another volume than the one that is shown.
    if (state.one?.volume.id !== id) showNothing(id);
    await attempt(loadOne);
  }
}

async function refresh() {
  if (!document.hidden) {
    await attempt(loadOverview, state.chosen === null ? loadVolumes : loadOne);
  }
  setTimeout(refresh, 10000);
}

let typing = 0;

function search() {
  clearTimeout(typing);
  state.start = 0;
  typing = setTimeout(() => attempt(loadVolumes), 250);
}

function turn(step) {
  state.start = Math.max(0, state.start + step * COUNT);
  attempt(loadVolumes);
}

// Its address would take the place of the one that says what is shown.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); at("main").focus(); });
at("theme").addEventListener("click", nextTheme);
at("unlock").addEventListener("click", openDialog);
at("token-cancel").addEventListener("click", () => at("token-dialog").close());
at("token-form").addEventListener("submit", allow);
at("snapshot-form").addEventListener("submit", takeSnapshot);
at("limits-form").addEventListener("submit", setLimits);
at("compare").addEventListener("submit", compare);
at("filter").addEventListener("submit", (event) => { event.preventDefault(); search(); });
at("search").addEventListener("input", search);
at("pool-filter").addEventListener("change", search);
at("abnormal").addEventListener("change", search);
at("before").addEventListener("click", () => turn(-1));
at("after").addEventListener("click", () => turn(1));
addEventListener("hashchange", () => { note(""); showHash(); });

setTheme(THEMES.includes(storedTheme()) ? storedTheme() : "system");
await attempt(loadOverview);
await showHash();
setTimeout(refresh, 10000);
