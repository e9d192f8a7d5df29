// Elements, numbers in words, and what is drawn. Text from the daemon becomes text nodes and nothing else: names of
// volumes come from strangers.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A name may have letters that turn the direction of what follows.
export const isolated = (text) => element("bdi", {}, text);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count) {
  if (count === null || count === undefined) return "unknown";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  // 2 GiB and not 2.00 GiB.
  return `${Number(value.toFixed(digits))} ${UNITS[unit]}`;
}

export const amount = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

const SPANS = [[31557600, "year"], [2629800, "month"], [86400, "day"], [3600, "hour"], [60, "minute"]];

export function age(seconds) {
  const passed = Date.now() / 1000 - seconds;
  const span = SPANS.find(([length]) => passed >= length);
  if (!span) return "less than a minute ago";
  return `${amount(Math.floor(passed / span[0]), span[1])} ago`;
}

export const moment = (seconds) =>
  element("time", { datetime: new Date(seconds * 1000).toISOString(), title: new Date(seconds * 1000).toLocaleString() }, age(seconds));

const VERDICTS = {
  normal: ["✓", "well", "Normal"],
  degraded: ["!", "warn", "Degraded"],
  inaccessible: ["✕", "bad", "Cannot be used"],
  "data-loss": ["✕", "bad", "Data lost"],
  deleted: ["–", "gone", "Deleted"],
  up: ["✓", "well", "In service"],
  short: ["!", "warn", "Nearly full"],
  hung: ["✕", "bad", "Does not answer"],
  failed: ["✕", "bad", "Failed"],
  absent: ["✕", "bad", "Missing"],
  abnormal: ["!", "warn", "Abnormal"],
  answers: ["✓", "well", "Answers"],
  away: ["✕", "bad", "Does not answer"],
};

export function verdict(word) {
  const [sign, kind, text] = VERDICTS[word] ?? ["?", "gone", word];
  return element("span", { class: `verdict ${kind}` }, element("span", { "aria-hidden": "true" }, sign), text);
}

let patterns = 0;

function hatching(kind, ground) {
  patterns += 1;
  const id = `hatch-${patterns}`;
  const pattern = drawn(
    "pattern",
    { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    ground ? drawn("rect", { width: 6, height: 6, class: ground }) : null,
    drawn("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: kind }),
  );
  return [id, drawn("defs", {}, pattern)];
}

// Parts one behind the other, then marks above them. All in pixels of the width that it has.
function bar(label, scale, width, parts, marks) {
  const height = 18;
  const at = (value) => (scale > 0 ? Math.max(0, Math.min(width, (value / scale) * width)) : 0);
  const image = drawn("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
  image.append(drawn("rect", { class: "track", width: at(marks.size ?? scale), height, rx: 3 }));
  let from = 0;
  for (const [value, kind] of parts) {
    if (!value) continue;
    const x = at(from);
    // A little is shown too.
    const length = Math.max(at(from + value) - x, 2);
    if (kind === "saved") {
      const [id, defs] = hatching("hatch", "hatch-ground");
      image.append(defs, drawn("rect", { x, width: length, height, fill: `url(#${id})` }));
    } else {
      image.append(drawn("rect", { class: kind, x, width: length, height }));
    }
    from += value;
  }
  if (marks.floor) {
    const x = at(marks.size - marks.floor);
    const [id, defs] = hatching("floor-hatch", null);
    image.append(defs, drawn("rect", { x, width: at(marks.size) - x, height, fill: `url(#${id})` }));
    image.append(drawn("line", { class: "floor-mark", x1: x, x2: x, y1: 0, y2: height }));
  }
  if (marks.limit !== undefined && marks.limit <= scale) {
    const x = Math.min(at(marks.limit), width - 1);
    image.append(drawn("line", { class: "edge", x1: x, x2: x, y1: 0, y2: height }));
  }
  return image;
}

// What sharing saves is between two numbers: what overwriting has unshared since a copy was made is not counted.
export function savings(space) {
  const used = space.size - space.free;
  const least = Math.max(0, space.unshared - used);
  const most = Math.max(least, space.unshared - space.stored);
  return { least, most };
}

export function saved({ least, most }) {
  if (most === 0) return "nothing is shared";
  if (least >= most * 0.9) return `sharing saves ${bytes(most)}`;
  return least === 0 ? `sharing saves up to ${bytes(most)}` : `sharing saves ${bytes(least)} to ${bytes(most)}`;
}

export function poolBars(space) {
  if (space.size === null || space.free === null) {
    return [element("p", {}, `${bytes(space.available)} can still be promised to volumes. The cluster knows the rest.`)];
  }
  const used = space.size - space.free;
  const promised = space.promised + space.reserved;
  const scale = Math.max(space.size, space.unshared, promised);
  const width = 600;
  const limit = promised + space.available;
  const rows = [
    [
      "Used",
      `${bytes(used)} of ${bytes(space.size)}`,
      bar(
        `Used ${bytes(used)} of ${bytes(space.size)}: ${bytes(space.stored)} for volumes and snapshots, ${bytes(used - space.stored)} otherwise. Free ${bytes(space.free)}. Floor ${bytes(space.floor)}.`,
        scale, width,
        [[Math.min(space.stored, used), "stored"], [Math.max(0, used - space.stored), "other"]],
        { size: space.size, floor: space.floor },
      ),
    ],
    [
      "Without sharing",
      bytes(space.unshared),
      bar(
        `Without sharing, volumes and snapshots would take ${bytes(space.unshared)}; ${saved(savings(space))}.`,
        scale, width,
        [[Math.min(space.stored, space.unshared), "stored"], [Math.max(0, space.unshared - space.stored), "saved"]],
        { size: space.size },
      ),
    ],
    [
      "Promised",
      `${bytes(promised)} of ${bytes(limit)}`,
      bar(
        `Promised to volumes and snapshots ${bytes(promised)}; ${bytes(space.available)} more can be promised.`,
        scale, width,
        [[promised, "stored"]],
        { size: space.size, limit },
      ),
    ],
  ];
  const list = element("dl", { class: "bars" });
  for (const [name, value, image] of rows) {
    list.append(element("div", {}, element("dt", {}, name), element("dd", { class: "drawn" }, image), element("dd", { class: "amount" }, value)));
  }
  return [list, key(space)];
}

function swatch(kind) {
  const image = drawn("svg", { viewBox: "0 0 18 13", "aria-hidden": "true" });
  if (kind === "saved" || kind === "floor") {
    const [id, defs] = kind === "saved" ? hatching("hatch", "hatch-ground") : hatching("floor-hatch", "track");
    image.append(defs, drawn("rect", { width: 18, height: 13, fill: `url(#${id})` }));
  } else {
    image.append(drawn("rect", { class: kind, width: 18, height: 13 }));
  }
  return image;
}

function key(space) {
  const line = (kind, text) => element("li", { class: "quiet" }, swatch(kind), text);
  const list = element("ul", { class: "key" });
  list.append(line("stored", `volumes and snapshots ${bytes(space.stored)}`));
  const other = space.size - space.free - space.stored;
  if (other > 0) list.append(line("other", `other data and metadata ${bytes(other)}`));
  list.append(line("track", `free ${bytes(space.free)}`));
  if (space.floor > 0) list.append(line("floor", `floor ${bytes(space.floor)}, kept free`));
  list.append(line("saved", saved(savings(space))));
  return list;
}

const sum = (one, other) => one.map((value, index) => value + (other[index] ?? 0));
const points = (values, most, steps) =>
  values.map((value, index) => `${(100 * (steps - values.length + index)) / (steps - 1)},${(28 - (26 * value) / most).toFixed(2)}`);

// The newest is at the right.
function lines(series, label, steps = 60) {
  const most = Math.max(1, ...series.flat());
  const image = drawn("svg", { role: "img", "aria-label": label, viewBox: "0 0 100 29", preserveAspectRatio: "none" });
  image.append(drawn("line", { class: "spark-base", x1: 0, x2: 100, y1: 28.5, y2: 28.5 }));
  series.forEach((values, index) => {
    if (values.length === 0) return;
    const drawnAt = points(values, most, steps);
    if (index === 0) {
      const first = drawnAt[0].split(",")[0];
      image.append(drawn("polygon", { class: "spark-area", points: `${first},28 ${drawnAt.join(" ")} 100,28` }));
    }
    image.append(drawn("polyline", { class: index === 0 ? "spark-line" : "spark-line second", points: drawnAt.join(" ") }));
  });
  return image;
}

const last = (values) => values[values.length - 1] ?? 0;
const perSecond = (value) => `${bytes(value)}/s`;
const operations = (value) => `${value.toLocaleString("en")} IOPS`;

export function sparklines(io) {
  if (!io) return element("span", { class: "quiet" }, "not in use here");
  if (io.reads.length === 0) return element("span", { class: "quiet" }, "measuring …");
  const moved = sum(io.read_bytes, io.written_bytes);
  const done = sum(io.reads, io.writes);
  const words = (name, values, unit) => `${name} in the last ten minutes: now ${unit(last(values))}, at most ${unit(Math.max(...values))}`;
  return element(
    "div", { class: "sparks" },
    lines([moved], words("Throughput", moved, perSecond)), element("span", {}, perSecond(last(moved))),
    lines([done], words("Operations", done, operations)), element("span", {}, operations(last(done))),
  );
}

export function charts(io) {
  if (!io) return element("p", { class: "quiet" }, "The volume is not staged on this node.");
  if (io.reads.length === 0) return element("p", { class: "quiet" }, `Measuring; the first figures come within ${2 * io.step_seconds} seconds.`);
  const card = (title, first, second, unit) =>
    element(
      "article", { class: "card" },
      element("h3", {}, title),
      lines([first, second], `${title} in the last ten minutes: reading now ${unit(last(first))}, at most ${unit(Math.max(...first))}; writing now ${unit(last(second))}, at most ${unit(Math.max(...second))}`),
      element("p", { class: "quiet", "aria-hidden": "true" }, element("span", {}, "10 minutes ago"), element("span", {}, "now")),
      element("p", { class: "quiet" }, element("span", {}, `reading ${unit(last(first))} (line)`), element("span", {}, `writing ${unit(last(second))} (dashes)`), element("span", {}, `highest ${unit(Math.max(...first, ...second))}`)),
    );
  return element("div", { class: "charts" }, card("Throughput", io.read_bytes, io.written_bytes, perSecond), card("Operations", io.reads, io.writes, operations));
}

export function meter(used, size) {
  const width = 96;
  return drawn(
    "svg", { class: "meter", viewBox: `0 0 ${width} 6`, preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: "track", width, height: 6, rx: 3 }),
    drawn("rect", { class: "stored", width: size > 0 ? Math.min(width, (used / size) * width) : 0, height: 6, rx: 3 }),
  );
}

export function strip(found, size) {
  const capacity = found.capacity_bytes || size;
  const cells = found.cells.length || 1;
  const seen = found.is_complete ? capacity : found.counted_bytes;
  const share = capacity > 0 ? Math.round((1000 * found.bytes) / capacity) / 10 : 0;
  const text = found.bytes === 0
    ? `Nothing of ${bytes(capacity)}.`
    : `${bytes(found.bytes)} of ${bytes(capacity)} (${share} %), in ${amount(found.ranges, "range", "ranges")}.`;
  const image = drawn("svg", { class: "strip", role: "img", "aria-label": text, viewBox: `0 0 ${cells * 8} 56`, preserveAspectRatio: "none" });
  if (!found.is_complete && capacity > 0) {
    const from = (seen / capacity) * cells * 8;
    image.append(drawn("rect", { class: "unseen", x: from, width: cells * 8 - from, height: 56 }));
  }
  found.cells.forEach((percent, index) => {
    if (percent === 0) return;
    const height = Math.max(6, (percent / 100) * 54);
    image.append(drawn("rect", { class: "cell", x: index * 8 + 0.5, width: 7, y: 56 - height, height }));
  });
  const parts = [image, element("p", { class: "axis quiet" }, element("span", {}, "0"), element("span", {}, "the higher a bar, the more of that part"), element("span", {}, bytes(capacity)))];
  if (!found.is_complete) parts.push(element("p", { class: "wrong" }, `Only the first ${bytes(seen)} were compared: there are more ranges than the page counts. Use: orlop snapshot diff.`));
  if (found.listed_ranges.length > 0) {
    const list = element("ol", {}, ...found.listed_ranges.map((it) => element("li", {}, `${bytes(it.length)} at ${bytes(it.offset)}`)));
    const title = found.ranges > found.listed_ranges.length ? `The first ${found.listed_ranges.length} of ${found.ranges.toLocaleString("en")} ranges` : "All ranges";
    parts.push(element("details", {}, element("summary", {}, title), list));
  }
  return { text, parts };
}
