// Plots of the last 24 hours: calls, errors and durations. uPlot is a global of uplot.js.

import { get } from "./api.js";
import { clock, duration, el, field, number, select, setOptions, setText, Table } from "./dom.js";

const day = 24 * 3600, hour = 3600;

// firstOf returns the start of a plot: 24 hours ago, or the first call if all are later.
function firstOf(points, now) {
  const first = points.length ? new Date(points[0].start) / 1000 - 600 : 0;
  return Math.max(now - day, Math.min(first, now - hour));
}

// fill returns the columns of a plot: a value for each period, also for those without calls.
function fill(points, step, now) {
  const first = Math.ceil(firstOf(points, now) / step) * step;
  const times = [], columns = { calls: [], errors: [], p50_ms: [], p99_ms: [] };
  const byTime = new Map(points.map((p) => [Math.floor(new Date(p.start) / 1000 / step) * step, p]));
  for (let t = first; t <= now; t += step) {
    const p = byTime.get(t);
    times.push(t);
    columns.calls.push(p?.calls ?? 0);
    columns.errors.push(p?.errors ?? 0);
    columns.p50_ms.push(p?.p50_ms || null);
    columns.p99_ms.push(p?.p99_ms || null);
  }
  return { times, ...columns };
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class PlotsView {
  id = "plots";
  title = "Last 24 hours";
  events = {};

  constructor() {
    this.backend = select([], "all backends");
    this.note = el("p", { role: "status", class: "message" });
    this.calls = el("div", { class: "plot", role: "img" });
    this.times = el("div", { class: "plot", role: "img" });
    this.table = new Table("Calls by hour", [
      { title: "Hour", head: true, class: "num", cell: (h) => clock(h.start * 1000).replace(/:\d\d$/, "") },
      { title: "Calls", class: "num", cell: (h) => number(h.calls) },
      { title: "Errors", class: "num", cell: (h) => number(h.errors) },
      { title: "Highest p99", class: "num", cell: (h) => duration(h.p99 || null) },
    ], "There were no calls in the last 24 hours.");
    this.element = el("div", {}, el("form", { class: "filters", onsubmit: (e) => e.preventDefault() }, field("Backend", this.backend)),
      this.note, el("h2", {}, "Calls and errors"), this.calls, el("h2", { class: "section" }, "Duration of calls"), this.times,
      el("details", {}, el("summary", {}, "The same as a table, by hour"), this.table.element));
    this.backend.addEventListener("change", () => this.draw());
    this.resize = new ResizeObserver(() => this.plots?.forEach((p) => p.setSize({ width: this.width, height: 190 })));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.shown && this.draw());
  }

  get width() { return Math.max(260, this.element.clientWidth); }

  show() {
    this.shown = true;
    this.resize.observe(this.element);
    this.load();
    this.timer = setInterval(() => this.load(), 30e3);
  }

  hide() {
    this.shown = false;
    this.resize.disconnect();
    clearInterval(this.timer);
  }

  handle() { }

  async load() {
    try {
      this.series = await get("/api/v1/series");
    } catch (e) {
      return setText(this.note, e.message);
    }
    setOptions(this.backend, Object.keys(this.series.backends ?? {}).sort(), "all backends");
    if (this.shown) this.draw();
  }

  draw() {
    if (!this.series) return;
    const name = this.backend.value;
    const [points, step] = name ? [this.series.backends[name] ?? [], 600] : [this.series.total ?? [], 60];
    const d = fill(points, step, Date.now() / 1000);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const calls = sum(d.calls), errors = sum(d.errors);
    const text = `${number(calls)} calls, ${number(errors)} errors (${calls ? (100 * errors / calls).toFixed(1) : "0"} %) in the last 24 hours`;
    setText(this.note, text);
    this.calls.setAttribute("aria-label", `Plot of calls and errors: ${text}`);
    this.times.setAttribute("aria-label", "Plot of the durations of calls, p50 and p99; the table below has the figures");
    this.plots?.forEach((p) => p.destroy());
    const per = name ? "10 minutes" : "minute";
    const count = (u, v) => (v === null ? "–" : number(v));
    const took = (u, v) => (v === null ? "–" : duration(v));
    this.plots = [
      this.plot(this.calls, [d.times, d.calls, d.errors], [
        { label: `calls per ${per}`, stroke: color("--accent"), width: 1.5, value: count },
        { label: "errors", stroke: color("--bad"), width: 1.5, dash: [4, 3], value: count }], (u, all) => all.map(number)),
      this.plot(this.times, [d.times, d.p50_ms, d.p99_ms], [
        { label: "p50", stroke: color("--accent"), width: 1.5, value: took, points: { show: true, size: 4 } },
        { label: "p99", stroke: color("--busy"), width: 1.5, dash: [4, 3], value: took, points: { show: true, size: 4 } }],
      (u, all) => all.map((v) => duration(v).replace(".0 ", " "))),
    ];
    this.showHours(d);
  }

  plot(target, data, series, axisValues) {
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const time = "{HH}:{mm}";
    return new uPlot({
      width: this.width, height: 190, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: (u, low, high) => [0, Math.max(1, high * 1.1)] } },
      series: [{ label: "time", value: (u, t) => (t === null ? "–" : clock(t * 1000)) }, ...series],
      axes: [{ ...axis, size: 26, values: (u, all) => all.map((t) => uPlot.fmtDate(time)(new Date(t * 1000))) },
        { ...axis, size: 62, values: axisValues }],
    }, data, target);
  }

  showHours(d) {
    const hours = new Map();
    d.times.forEach((t, i) => {
      if (!d.calls[i]) return;
      const start = Math.floor(t / hour) * hour;
      const h = hours.get(start) ?? { start, calls: 0, errors: 0, p99: 0 };
      h.calls += d.calls[i];
      h.errors += d.errors[i];
      h.p99 = Math.max(h.p99, d.p99_ms[i] ?? 0);
      hours.set(start, h);
    });
    this.table.show([...hours.values()].reverse(), (h) => String(h.start));
  }
}
