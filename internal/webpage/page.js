"use strict";
// The charts of the page. The data is what memory.go writes: events in columns.
(() => {
const $ = id => document.getElementById(id);
const figures = JSON.parse($("figures").textContent);
const palette = ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#cc79a7", "#d55e00", "#b8a90a", "#8c6bb1", "#66a61e", "#a6761d", "#1b9e77", "#7570b3"];
const gray = "#8b949e";

// bytes prints a size as reports do.
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let v = Math.abs(n), u = 0;
  while (v >= 1024 && u < units.length - 1) { v /= 1024; u++; }
  return (n < 0 ? "-" : "") + (u ? v.toFixed(2) : v) + " " + units[u];
}

const count = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");

// put shows a number, readable by scripts.
function put(id, value, text) {
  $(id).value = String(value);
  $(id).textContent = text;
}

const escaped = s => String(s).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let dark = matchMedia("(prefers-color-scheme: dark)").matches;

// Charts are drawn again from their options when the theme changes.
const charts = [];
function chart(id, options) {
  const c = { e: echarts.init($(id)), options };
  charts.push(c);
  draw(c);
  return c.e;
}
function draw(c) {
  const text = css("--text"), soft = css("--soft"), line = css("--line");
  const axis = { axisLabel: { color: soft }, nameTextStyle: { color: soft }, axisLine: { lineStyle: { color: line } }, splitLine: { lineStyle: { color: line, opacity: .5 } } };
  const o = c.options();
  for (const key of ["xAxis", "yAxis"]) {
    if (o[key]) o[key] = { ...axis, ...o[key], axisLabel: { ...axis.axisLabel, ...o[key].axisLabel } };
  }
  o.tooltip = { confine: true, backgroundColor: css("--field"), borderColor: line, textStyle: { color: text, fontSize: 13 }, ...o.tooltip };
  if (o.legend) o.legend = { type: "scroll", textStyle: { color: text }, pageTextStyle: { color: text }, pageIconColor: text, top: 0, ...o.legend };
  o.aria = { enabled: true, decal: { show: $("decals")?.checked ?? true }, ...o.aria };
  c.e.clear(); // else labels of what was there before stay
  c.e.setOption({ animation: false, textStyle: { fontFamily: "system-ui, sans-serif", color: text }, ...o }, true);
}
const redraw = () => charts.forEach(draw);
const resize = () => charts.forEach(c => c.e.resize());
addEventListener("resize", () => { resize(); redraw(); });
function theme(toDark) {
  dark = toDark;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  redraw();
}
$("theme").onclick = () => theme(!dark);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", e => theme(e.matches));
let before = false;
addEventListener("beforeprint", () => { before = dark; if (dark) theme(false); resize(); });
addEventListener("afterprint", () => { if (before) theme(true); resize(); });

// sizeAxis is an axis of bytes.
const sizeAxis = max => {
  let step = 1024 ** Math.floor(Math.log2(Math.max(max, 1)) / 10);
  while (max / step > 8) step *= 2;
  while (max / step < 4) step /= 2;
  return { type: "value", min: 0, max: Math.ceil(max / step) * step, interval: step, axisLabel: { formatter: n => bytes(n).replace(/\.0+ |(\.\d*[1-9])0+ /, "$1 ") } };
};

// The events.

let data; // the device that is shown: columns, and what is derived of them
let moment = 0, view = [0, 0];
let groups; // { names, of: the group of each block }
let matches; // of the search: the blocks; null without one

function derive(d) {
  const n = d.kinds.length;
  d.n = n;
  d.block_ = new Int32Array(n).fill(-1); // the block that an event allocates or frees
  d.extra = new Int32Array(n); // the index into moved or tried
  d.allocated = new Float64Array(n);
  d.reserved = new Float64Array(n);
  d.born = new Int32Array(d.at.length).fill(-1);
  let born = d.held, freed = 0, moved = 0, tried = 0, allocated = d.rest;
  let reserved = d.ranges.reduce((sum, r) => sum + r[1], 0);
  for (let b = 0; b < d.held; b++) allocated += d.block[b];
  d.peak = 0;
  for (let i = 0; i < n; i++) {
    switch (d.kinds[i]) {
      case "a": d.block_[i] = born; d.born[born] = i; allocated += d.block[born++]; break;
      case "f": d.block_[i] = d.freed[freed++]; allocated -= d.block[d.block_[i]]; break;
      case "A": case "M": reserved += d.moved[moved][1]; d.extra[i] = moved++; break;
      case "F": case "U": reserved -= d.moved[moved][1]; d.extra[i] = moved++; break;
      case "o": d.extra[i] = tried++;
    }
    d.allocated[i] = allocated;
    d.reserved[i] = reserved;
    if (allocated > d.allocated[d.peak]) d.peak = i;
  }
  d.peakReserved = d.reserved.reduce((a, b) => Math.max(a, b), 0);
}

// living lists the blocks that live after an event.
function living(at) {
  const live = new Uint8Array(data.at.length);
  live.fill(1, 0, data.held);
  for (let i = 0; i <= at; i++) {
    if (data.kinds[i] === "a") live[data.block_[i]] = 1;
    else if (data.kinds[i] === "f") live[data.block_[i]] = 0;
  }
  const out = [];
  live.forEach((l, b) => { if (l) out.push(b); });
  return out;
}

const workOf = b => data.works[data.by[b]];
// what is a block, with its category if there are any.
const what = b => bytes(data.bytes[b]) + (data.categories.length ? " (" + category(b) + ")" : "");
const category = b => data.category[b] < 0 ? (b < data.held ? "before the record" : "unknown") : data.categories[data.category[b]].replace(/_/g, " ");

// parts are the components of a module's path; an index belongs to the component before.
function parts(module) {
  if (/[ :]/.test(module)) return [module]; // a line of Python
  const out = [];
  for (const p of module.split(".")) {
    if (/^\d+$/.test(p) && out.length) out[out.length - 1] += "." + p;
    else out.push(p);
  }
  return out;
}
const keys = {
  category,
  module: b => parts(workOf(b).m).slice(0, 2).join("."),
  layer: b => /[ :]/.test(workOf(b).m) ? workOf(b).m : workOf(b).m.replace(/(^|\.)\d+(?=\.|$)/g, "$1*"),
  operator: b => workOf(b).o || "(none)",
};
const order = ["parameters", "gradients", "optimizer state", "activations", "inputs", "temporaries", "workspace"];

// group sorts blocks into groups: the largest at the peak, and the rest.
function group() {
  const key = keys[$("by").value], names = new Map(), sums = [];
  const of = new Int32Array(data.at.length);
  for (let b = 0; b < of.length; b++) {
    const k = key(b);
    if (!names.has(k)) { names.set(k, names.size); sums.push(0); }
    of[b] = names.get(k);
  }
  for (const b of living(data.peak)) sums[of[b]] += data.bytes[b];
  const all = [...names.keys()];
  let shown = all.map((_, i) => i).sort((a, b) => sums[b] - sums[a]).slice(0, palette.length);
  if ($("by").value === "category") shown.sort((a, b) => order.indexOf(all[a]) - order.indexOf(all[b]));
  const place = new Int32Array(all.length).fill(shown.length);
  shown.forEach((g, i) => { place[g] = i; });
  const list = shown.map(i => all[i]);
  const rest = all.length > shown.length;
  if (rest || data.rest) list.push("other");
  groups = { other: list.length - 1, names: [...list, "rounding"], of: of.map(g => place[g]), colors: list.map((_, i) => i < shown.length ? palette[i] : gray).concat("#c9c9c9") };
}

// valuesAt are the bytes of each group, of rounding, and of what was found, after some events.
function valuesAt(events) {
  const k = groups.names.length, now = new Float64Array(k + 1), out = groups.names.concat("").map(() => []);
  const add = (b, sign) => {
    now[groups.of[b]] += sign * data.bytes[b];
    now[k - 1] += sign * (data.block[b] - data.bytes[b]);
    if (matches?.has(b)) now[k] += sign * data.block[b];
  };
  for (let b = 0; b < data.held; b++) add(b, 1);
  if (data.rest) now[groups.other] += data.rest;
  let i = 0;
  for (const e of events) {
    for (; i <= e; i++) {
      if (data.kinds[i] === "a") add(data.block_[i], 1);
      else if (data.kinds[i] === "f") add(data.block_[i], -1);
    }
    for (let g = 0; g <= k; g++) out[g].push(now[g]);
  }
  return out;
}

// sample chooses events of the window: of each of its parts the first, and those with the most and the least.
function sample() {
  const [from, to] = view, n = to - from + 1, most = 350;
  const out = new Set([from, to, Math.min(Math.max(moment, from), to)]);
  if (n <= 2 * most) {
    for (let i = from; i <= to; i++) out.add(i);
  } else {
    for (let k = 0; k < most; k++) {
      const a = from + Math.floor(k * n / most), b = from + Math.floor((k + 1) * n / most);
      let high = a, low = a, held = a;
      for (let i = a; i < b; i++) {
        if (data.allocated[i] > data.allocated[high]) high = i;
        if (data.allocated[i] < data.allocated[low]) low = i;
        if (data.reserved[i] > data.reserved[held]) held = i;
      }
      out.add(high).add(low).add(held);
    }
  }
  return [...out].sort((a, b) => a - b);
}

function doing(w) {
  const step = w.s ? "step " + w.s + ", " : "";
  return [w.p && step + w.p, w.m, w.o].filter(Boolean).join(" · ");
}

// said is what an event does, in words.
function said(i) {
  const b = data.block_[i];
  switch (data.kinds[i]) {
    case "a": return "allocates " + what(b);
    case "f": return "frees " + what(b) + " of " + doing(workOf(b)) + (b < data.held ? "" : ", after " + count(i - data.born[b], "event"));
    case "A": case "M": return "reserves " + bytes(data.moved[data.extra[i]][1]) + " of the device";
    case "F": case "U": return "returns " + bytes(data.moved[data.extra[i]][1]) + " to the device";
  }
  const [tried, free] = data.tried[data.extra[i]];
  return "OUT OF MEMORY: a request of " + bytes(tried) + " fails, " + bytes(free) + " free";
}

let over, segments;

function seriesOf() {
  const x = sample(), values = valuesAt(x), k = groups.names.length;
  const out = groups.names.map((name, g) => ({
    name, type: "line", stack: "allocated", step: "end", symbol: "none", lineStyle: { width: 0 }, areaStyle: { opacity: matches ? .35 : .9 },
    itemStyle: { color: groups.colors[g] }, emphasis: { disabled: true }, data: x.map((e, j) => [e, values[g][j]]),
  }));
  out.push({
    name: "reserved", type: "line", step: "end", symbol: "none", z: 5, lineStyle: { width: 2, color: css("--text") }, itemStyle: { color: css("--text") },
    emphasis: { disabled: true }, data: x.map(e => [e, data.reserved[e]]), markLine: marks(),
  });
  out.push({
    name: "found", type: "line", step: "end", symbol: "none", z: 6, lineStyle: { width: 3, type: "dashed", color: css("--accent") },
    itemStyle: { color: css("--accent") }, emphasis: { disabled: true }, data: matches ? x.map((e, j) => [e, values[k][j]]) : [],
  });
  return out;
}

function marks() {
  const soft = css("--soft"), text = css("--text"), list = [];
  const label = (formatter, position = "insideStartTop", color = text) => ({ formatter, position, color, fontWeight: "bold", textBorderColor: css("--back"), textBorderWidth: 3 });
  if (data.limit > 0 && data.limit <= top()) {
    list.push({ yAxis: data.limit, label: label("usable " + bytes(data.limit)), lineStyle: { color: "#cf222e", width: 2, type: "solid" } });
  }
  list.push({ xAxis: data.peak, label: label("peak " + bytes(data.allocated[data.peak]), "end"), lineStyle: { color: text, type: "dotted", width: 1.5 } });
  list.push({ xAxis: moment, label: label("here", "start", css("--accent")), lineStyle: { color: css("--accent"), width: 1.5, type: "solid" } });
  if (data.oom >= 0) list.push({ xAxis: data.oom, label: label("OUT OF MEMORY", "insideEndTop"), lineStyle: { color: "#cf222e", width: 2.5, type: "dashed" } });
  const steps = [];
  for (let i = 1, step = 0; i < data.n; i++) {
    const s = data.works[data.doing[i]].s || 0;
    if (s !== step) { step = s; steps.push(i); }
  }
  if (steps.length < 30) {
    for (const i of steps) list.push({ xAxis: i, label: { formatter: "step " + data.works[data.doing[i]].s, position: "insideEndBottom", color: soft, rotate: 0, fontSize: 11 }, lineStyle: { color: soft, opacity: .5, type: "solid", width: 1 } });
  }
  return { symbol: "none", silent: true, animation: false, data: list };
}

// top is the end of the axis: the limit is in view unless little is used of it.
const topOf = d => Math.max(d.peakReserved, d.limit < 4 * d.peakReserved ? d.limit : 0) * 1.04;
const top = () => topOf(data); // of the chart

function overOptions() {
  return {
    grid: { left: 75, right: 50, top: 62, bottom: 75 },
    legend: { data: [...groups.names, "reserved"].concat(matches ? ["found"] : []) },
    xAxis: { type: "value", min: 0, max: Math.max(data.n - 1, 1), name: "event of the allocator", nameLocation: "middle", nameGap: 24, splitLine: { show: false }, minInterval: 1, axisLabel: { hideOverlap: true } },
    yAxis: sizeAxis(top()),
    dataZoom: [
      { type: "inside", startValue: view[0], endValue: view[1], filterMode: "none", minValueSpan: 10 },
      { type: "slider", startValue: view[0], endValue: view[1], filterMode: "none", minValueSpan: 10, bottom: 8, height: 22, brushSelect: false, labelFormatter: v => String(Math.round(v)), textStyle: { color: css("--soft") } },
    ],
    tooltip: { trigger: "axis", formatter: ps => describe(Math.round(ps[0].value[0])) },
    aria: { label: { description: "Memory over " + data.n + " events, stacked by " + $("by").value + ". Peak " + bytes(data.allocated[data.peak]) + " allocated, " + bytes(data.peakReserved) + " reserved. The tables below have the figures." } },
    series: seriesOf(),
  };
}

// describe is what the pointer shows: the event, and what lives after it.
function describe(i) {
  const values = valuesAt([i]), lines = ["<b>event " + i + "</b>: " + escaped(said(i)), escaped(doing(data.works[data.doing[i]]))];
  lines.push("allocated <b>" + bytes(data.allocated[i]) + "</b>, reserved " + bytes(data.reserved[i]));
  groups.names.map((n, g) => [n, values[g][0], groups.colors[g]]).filter(v => v[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 8)
    .forEach(([n, v, c]) => lines.push("<span style=\"color:" + c + "\">■</span> " + escaped(n) + " " + bytes(v)));
  return lines.join("<br>");
}

let waiting = false;
function zoomed() {
  const z = over.getOption().dataZoom[0], last = Math.max(data.n - 1, 1);
  view = [Math.max(0, Math.floor(z.start / 100 * last)), Math.min(data.n - 1, Math.ceil(z.end / 100 * last))];
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; over.setOption({ series: seriesOf() }); });
}
function zoom(factor) {
  const middle = moment >= view[0] && moment <= view[1] ? moment : (view[0] + view[1]) / 2, half = Math.max((view[1] - view[0]) * factor / 2, 10);
  show(middle - half, middle + half);
}
function show(from, to) {
  over.dispatchAction({ type: "dataZoom", startValue: Math.max(0, Math.round(from)), endValue: Math.min(data.n - 1, Math.round(to)) });
}

// go makes an event the moment.
function go(i) {
  moment = Math.min(Math.max(i, 0), data.n - 1);
  const w = data.works[data.doing[moment]], span = view[1] - view[0];
  if (moment < view[0] || moment > view[1]) show(moment - span / 2, moment + span / 2);
  over.setOption({ series: [{ name: "reserved", markLine: marks() }] });
  $("moment").innerHTML = "Event <b>" + moment + "</b>: <b>" + escaped(said(moment)) + "</b> · " + escaped(doing(w)) + " · allocated <b>" + bytes(data.allocated[moment]) + "</b>, reserved <b>" + bytes(data.reserved[moment]) + "</b>" +
    (w.l?.length ? "<br>from " + escaped(w.l.join(", ")) : "");
  draw(charts.find(c => c.e === segments));
}

// The segments after an event, laid out in lines of equal length.

function rangesAt(at) {
  let list = data.ranges.map(r => ({ at: r[0], size: r[1] }));
  for (let i = 0; i <= at; i++) {
    const kind = data.kinds[i];
    if (kind === "a" || kind === "f" || kind === "o") continue;
    const [from, size] = data.moved[data.extra[i]];
    if (kind === "A") list.push({ at: from, size });
    else if (kind === "M") {
      const near = list.find(r => r.mapped && r.at + r.size === from);
      if (near) near.size += size; else list.push({ at: from, size, mapped: true });
    } else {
      list = list.flatMap(r => from >= r.at && from + size <= r.at + r.size
        ? [{ ...r, size: from - r.at }, { ...r, at: from + size, size: r.at + r.size - from - size }].filter(p => p.size > 0) : [r]);
    }
  }
  return list.sort((a, b) => a.at - b.at);
}

const lines = 24;

function segmentOptions() {
  const ranges = rangesAt(moment), live = living(moment).sort((a, b) => data.at[a] - data.at[b]);
  const total = ranges.reduce((s, r) => s + r.size, 0), length = Math.max(total / lines, 1), rects = [];
  let at = 0, next = 0, free = 0, largest = 0, holes = 0;
  // put adds a run of bytes, over as many lines as it takes: block -1 is free.
  const put = (size, block, segment) => {
    if (block < 0) { free += size; holes++; largest = Math.max(largest, size); }
    for (let left = size; left > 0;) {
      const line = Math.floor(at / length + 1e-9), begin = at - line * length, run = Math.min(left, Math.max(length - begin, 1));
      rects.push([line, begin, begin + run, block, size, segment]);
      at += run;
      left -= run;
    }
  };
  ranges.forEach((r, s) => {
    let end = r.at;
    while (next < live.length && data.at[live[next]] < r.at) next++;
    for (; next < live.length && data.at[live[next]] < r.at + r.size; next++) {
      const b = live[next];
      if (data.at[b] > end) put(data.at[b] - end, -1, s);
      put(data.block[b], b, s);
      end = data.at[b] + data.block[b];
    }
    if (end < r.at + r.size) put(r.at + r.size - end, -1, s);
  });
  $("segments-facts").innerHTML = "<b>" + count(ranges.length, "segment") + "</b> of <b>" + bytes(total) + "</b>, <b>" + live.length + "</b> blocks in use, <b>" + bytes(free) + "</b> cached in " + holes + " pieces, the largest " + bytes(largest) + ". A line is " + bytes(Math.round(length)) + ".";
  const text = css("--text"), back = css("--back"), line = css("--line");
  return {
    grid: { left: 8, right: 8, top: 8, bottom: 8 },
    xAxis: { type: "value", min: 0, max: length, show: false },
    yAxis: { type: "value", min: 0, max: lines, inverse: true, show: false },
    tooltip: {
      trigger: "item", formatter: p => {
        const [, , , b, size, s] = p.value, r = ranges[s], where = "<br>segment " + (s + 1) + " of " + ranges.length + ", " + bytes(r.size) + " at 0x" + r.at.toString(16);
        if (b < 0) return "<b>cached</b>, " + bytes(size) + where;
        return "<b>" + bytes(data.bytes[b]) + "</b> in a block of " + bytes(size) + (data.categories.length ? " (" + escaped(category(b)) + ")" : "") + "<br>" + escaped(doing(workOf(b))) +
          "<br>" + (b < data.held ? "older than the record" : count(moment - data.born[b], "event") + " old") + ", at 0x" + data.at[b].toString(16) + where;
      },
    },
    aria: { label: { description: ranges.length + " segments with " + live.length + " blocks in use; " + bytes(free) + " are cached." } },
    series: [{
      type: "custom", clip: true, encode: { x: [1, 2], y: 0 }, data: rects, progressive: 0,
      renderItem: (params, api) => {
        const b = api.value(3), from = api.coord([api.value(1), api.value(0)]), to = api.coord([api.value(2), api.value(0) + 1]);
        const width = Math.max(to[0] - from[0], .6), height = (to[1] - from[1]) * .84;
        const fade = matches && (b < 0 || !matches.has(b));
        const name = b < 0 ? "cached" : groups.names[groups.of[b]];
        return {
          type: "rect", shape: { x: from[0], y: from[1], width, height },
          style: { fill: b < 0 ? "transparent" : groups.colors[groups.of[b]], stroke: b < 0 ? line : back, lineWidth: width > 4 ? 1 : 0, opacity: fade ? .25 : 1 },
          textContent: width > 7 * name.length ? { style: { text: name, fill: b < 0 ? css("--soft") : "#fff", stroke: b < 0 ? "none" : "rgba(0,0,0,.65)", lineWidth: b < 0 ? 0 : 2.5, fontSize: 11 } } : undefined,
          textConfig: { position: "inside" },
        };
      },
    }],
  };
}

// The peak by module, as a tree of paths.

function treeOptions() {
  const root = { name: "all", children: new Map(), value: 0 };
  for (const b of living(data.peak)) {
    const w = workOf(b);
    let node = root;
    root.value += data.bytes[b];
    for (const p of [...parts(w.m), w.o || data.categories.length && category(b)].filter(Boolean)) {
      if (!node.children.has(p)) node.children.set(p, { name: p, children: new Map(), value: 0 });
      node = node.children.get(p);
      node.value += data.bytes[b];
    }
  }
  put("tree-bytes", root.value, bytes(root.value));
  let i = 0;
  const plain = (n, color) => {
    const out = { name: n.name, value: n.value };
    if (color) out.itemStyle = { color };
    if (n.children.size) out.children = [...n.children.values()].sort((a, b) => b.value - a.value).map(c => plain(c, color));
    return out;
  };
  const list = [...root.children.values()].sort((a, b) => b.value - a.value);
  const colored = list.length > 1 ? list.map(n => plain(n, palette[i++ % palette.length]))
    : list.map(n => ({ ...plain(n), children: [...n.children.values()].sort((a, b) => b.value - a.value).map(c => plain(c, palette[i++ % palette.length])) }));
  const back = css("--back"), label = n => n.name + "\n" + bytes(n.value);
  return {
    tooltip: { formatter: p => "<b>" + escaped(p.treePathInfo.slice(1).map(n => n.name).join(" · ")) + "</b><br>" + bytes(p.value) + ", " + (100 * p.value / root.value).toFixed(1) + " %" },
    aria: { decal: { show: false }, label: { description: "The peak by module: " + list.slice(0, 12).map(n => n.name + " " + bytes(n.value)).join(", ") } },
    series: [{
      type: "treemap", animation: false, data: colored, name: "all", top: 4, left: 4, right: 4, bottom: 34, roam: false, nodeClick: "zoomToNode", leafDepth: 3, visibleMin: 120,
      breadcrumb: { bottom: 4, itemStyle: { color: css("--field"), borderColor: css("--line"), textStyle: { color: css("--text") } } },
      label: { formatter: label, color: "#fff", textBorderColor: "rgba(0,0,0,.7)", textBorderWidth: 2, lineHeight: 15, overflow: "truncate" },
      upperLabel: { show: true, height: 18, color: css("--text"), formatter: p => p.name + "  " + bytes(p.value) },
      itemStyle: { borderColor: back, borderWidth: 1, gapWidth: 1 },
      levels: [{ itemStyle: { borderWidth: 0, gapWidth: 3 }, upperLabel: { show: false } }, { itemStyle: { gapWidth: 2 } }, { colorSaturation: [.35, .6] }],
    }],
  };
}

function find() {
  const text = $("search").value.trim().toLowerCase();
  matches = null;
  $("found").textContent = "";
  if (text) {
    const hit = data.works.map(w => (w.m + " " + w.o).toLowerCase().includes(text));
    matches = new Set();
    for (let b = 0; b < data.at.length; b++) if (hit[data.by[b]]) matches.add(b);
    const live = living(data.peak).filter(b => matches.has(b));
    $("found").textContent = matches.size + " blocks found; " + bytes(live.reduce((s, b) => s + data.block[b], 0)) + " of them live at the peak";
  }
  update();
}

function update() {
  draw(charts.find(c => c.e === over));
  go(moment);
}

// choose shows one of the replays.
function choose(d) {
  data = d;
  moment = d.oom >= 0 && d.kinds[d.oom] === "o" ? d.oom : d.peak;
  view = [0, d.n - 1];
  const known = d.categories.length > 0, by = $("by");
  by.replaceChildren(...Object.keys(keys).filter(k => known || k !== "category").map(k => new Option(k, k)));
  put("events", d.n, d.n.toLocaleString("en"));
  put("events-allocated", d.allocated[d.peak], bytes(d.allocated[d.peak]));
  put("events-reserved", d.peakReserved, bytes(d.peakReserved));
  const said = figures.peak;
  $("beyond").textContent = said?.allocated_bytes && d === all[0] && !d.left && (said.allocated_bytes !== d.allocated[d.peak] || said.reserved_bytes !== d.peakReserved)
    ? "The job's peak (" + bytes(said.allocated_bytes) + " allocated, " + bytes(said.reserved_bytes) + " reserved) is in a later step, which repeats these." : "";
  if (d.left) $("beyond").textContent += " Left out, as there are too many: " + count(d.left, "event") + " of blocks of " + bytes(d.left_below) + " and less, which live at other times than the peak. There the areas are lower than what is allocated.";
  if (d.rest) $("beyond").textContent += " Not shown one by one, as there are too many: " + bytes(d.rest) + " in blocks of " + bytes(d.left_below) + " and less that are in use from the beginning to the end.";
  if (d.limit > 0 && d.limit > topOf(d)) $("beyond").textContent += " Usable are " + bytes(d.limit) + ", above the chart.";
  group();
}

let all = [];
async function unpack() {
  const packed = $("events-packed").textContent;
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser has no DecompressionStream, which the charts of events need: Chrome 80, Firefox 113, Safari 16.4 or later. The tables below have the figures.");
  }
  const raw = Uint8Array.from(atob(packed), c => c.charCodeAt(0));
  return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function events() {
  all = (await unpack()).filter(d => d.kinds.length);
  if (!all.length) return;
  all.forEach(derive);
  $("replay").replaceChildren(...all.map((d, i) => new Option(d.name, i)));
  $("replay-label").hidden = all.length < 2;
  for (const id of ["over", "segments", "tree"]) $(id).hidden = false;
  choose(all[0]);
  over = chart("over-chart", overOptions);
  segments = chart("segments-chart", segmentOptions);
  chart("tree-chart", treeOptions);
  go(moment);
  over.on("datazoom", zoomed);
  over.getZr().on("click", e => {
    const at = [e.offsetX, e.offsetY];
    if (over.containPixel("grid", at)) go(Math.round(over.convertFromPixel({ xAxisIndex: 0 }, at[0])));
  });
  $("replay").onchange = e => { choose(all[e.target.value]); find(); redraw(); };
  $("by").onchange = () => { group(); update(); };
  $("search").oninput = find;
  $("decals").onchange = redraw;
  const actions = {
    back: e => go(moment - (e.shiftKey ? Math.ceil((view[1] - view[0]) / 100) : 1)),
    next: e => go(moment + (e.shiftKey ? Math.ceil((view[1] - view[0]) / 100) : 1)),
    "to-peak": () => go(data.peak), in: () => zoom(.5), out: () => zoom(2), all: () => show(0, data.n - 1),
  };
  for (const id in actions) $(id).onclick = actions[id];
  const byKey = { ArrowLeft: "back", ArrowRight: "next", p: "to-peak", "+": "in", "=": "in", "-": "out", 0: "all" };
  addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || !byKey[e.key] || e.target.closest?.("input, select, .scroll")) return;
    e.preventDefault();
    actions[byKey[e.key]](e);
  });
}

// The charts of the figures.

function limitLine(n, y) {
  return { symbol: "none", silent: true, data: [{ [y]: n, label: { formatter: "usable " + bytes(n), position: "insideEndTop", color: css("--text"), textBorderColor: css("--back"), textBorderWidth: 3 }, lineStyle: { color: "#cf222e", width: 2, type: "solid" } }] };
}

function curve() {
  const points = figures.curve;
  if (!points?.length) return;
  $("curve").hidden = false;
  const usable = figures.device.usable_bytes;
  chart("curve-chart", () => ({
    grid: { left: 75, right: 25, top: 40, bottom: 45 }, legend: {}, tooltip: { trigger: "axis", valueFormatter: bytes },
    xAxis: { type: "category", data: points.map(p => p.batch_size), name: "batch size", nameLocation: "middle", nameGap: 26 },
    yAxis: sizeAxis(Math.max(usable, ...points.map(p => p.reserved_bytes)) * 1.04),
    series: [
      { name: "allocated", type: "line", symbolSize: 8, color: palette[0], data: points.map(p => p.allocated_bytes) },
      { name: "reserved", type: "line", symbol: "rect", symbolSize: 8, color: palette[1], lineStyle: { type: "dashed" }, data: points.map(p => p.reserved_bytes), markLine: limitLine(usable, "yAxis") },
    ],
  }));
}

function losses() {
  const list = figures.losses?.map((l, i) => [i + 1, l]).filter(p => p[1] !== null);
  if (!(list?.length > 1)) return;
  $("losses").hidden = false;
  chart("losses-chart", () => ({
    grid: { left: 75, right: 25, top: 20, bottom: 45 }, tooltip: { trigger: "axis" },
    xAxis: { type: "value", min: 1, max: figures.losses.length, minInterval: 1, name: "step", nameLocation: "middle", nameGap: 26 },
    yAxis: { type: "value", scale: true },
    aria: { label: { description: "The loss, from " + list[0][1] + " in the first step to " + list.at(-1)[1] + " in the last" } },
    series: [{ name: "loss", type: "line", symbolSize: list.length > 100 ? 0 : 6, color: palette[0], data: list }],
  }));
}

function advice() {
  const changes = figures.advice?.changes;
  if (!changes?.length) return;
  $("advice").hidden = false;
  const bars = [{ name: "as it is", n: figures.peak.reserved_bytes, result: figures.verdict.result }].concat(changes.map((c, i) => ({ name: i + 1 + ". " + c.change, n: c.peak_reserved_bytes, result: c.result })));
  $("advice-chart").style.height = 90 + 42 * bars.length + "px";
  const usable = figures.device.usable_bytes;
  chart("advice-chart", () => ({
    grid: { left: 8, right: 25, top: 10, bottom: 30 }, tooltip: { formatter: p => escaped(p.name) + "<br>" + bytes(p.value) }, aria: { decal: { show: false } },
    yAxis: { type: "category", inverse: true, data: bars.map(b => b.name), axisLabel: { show: false }, axisTick: { show: false } },
    xAxis: sizeAxis(Math.max(usable, ...bars.map(b => b.n)) * 1.04),
    series: [{
      type: "bar", barWidth: 30, markLine: limitLine(usable, "xAxis"),
      label: { show: true, position: "insideLeft", color: "#fff", textBorderColor: "rgba(0,0,0,.75)", textBorderWidth: 3, formatter: p => bars[p.dataIndex].name + "   " + bytes(p.value) + "   " + bars[p.dataIndex].result },
      data: bars.map(b => ({ value: b.n, itemStyle: { color: b.result === "OOM" ? "#d55e00" : b.result === "TIGHT" ? "#e69f00" : "#56b4e9" } })),
    }],
  }));
}

function trouble(e) {
  $("trouble").hidden = false;
  $("trouble").textContent = e.message;
}
try { losses(); curve(); advice(); } catch (e) { trouble(e); }
($("over") ? events() : Promise.resolve()).catch(trouble).finally(() => {
  document.documentElement.dataset.ready = Math.round(performance.now());
});
})();
