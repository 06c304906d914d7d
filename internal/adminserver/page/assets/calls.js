// Calls as they happen.

import { get, query } from "./api.js";
import { facts } from "./backends.js";
import { bytes, clock, duration, el, field, number, once, openDialog, select, setOptions, setText, Table, untrusted } from "./dom.js";
import { logLine } from "./logs.js";

const maxRows = 300;
const outcomes = ["ok", "tool_error", "rpc_error", "cancelled", "timeout", "backend_lost", "not_run", "rejected", "input_required"];

// outcome returns how a call ended: a symbol and a word.
function outcome(c) {
  if (!c.end) return el("span", { class: "state busy" }, el("span", { "aria-hidden": "true" }, "◐"), " running");
  const ok = c.end.outcome === "ok";
  return el("span", { class: `state ${ok ? "good" : "bad"}` },
    el("span", { "aria-hidden": "true" }, ok ? "●" : "▲"), ` ${c.end.outcome.replace("_", " ")}`);
}

const taken = (c) => (c.end ? c.end.queued_ms + c.end.dur_ms : Date.now() - new Date(c.started));

export class CallsView {
  id = "calls";
  title = "Calls";
  draw = once(() => this.render());

  constructor(shared, reopen) {
    Object.assign(this, { shared, reopen, calls: new Map(), lost: 0, paused: false, missed: 0 });
    this.backend = select([], "all backends");
    this.result = select(outcomes, "all outcomes");
    this.text = el("input", { type: "search", placeholder: "tool, client, id …", spellcheck: "false" });
    this.slower = el("input", { type: "text", placeholder: "500ms", size: "6", pattern: "[0-9.]+(ms|s|m|h)", spellcheck: "false" });
    this.pause = el("button", { "aria-pressed": "false", onclick: () => this.setPaused(!this.paused) }, "Pause");
    this.note = el("p", { role: "status", class: "message" });
    this.table = new Table("Calls, the latest first", [
      { title: "Time", class: "mono num", cell: (c) => [clock(c.started),
        el("span", { class: "wide" }, clock(c.started, true).slice(-4))], key: (c) => c.started },
      { title: "Name", head: true, class: "name grow", cell: (c) => this.name(c), key: (c) => c.call },
      { title: "Backend", class: "wide", cell: (c) => (c.backend ? untrusted(c.backend) : "–"), key: (c) => c.backend ?? "" },
      { title: "Client", class: "wide", cell: (c) => untrusted([c.client, c.principal].filter(Boolean).join(" · ") || "–", "bdi", 60), key: (c) => c.call },
      { title: "Outcome", cell: outcome, key: (c) => c.end?.outcome ?? "" },
      { title: "Queued", class: "wide num", cell: (c) => duration(c.end?.queued_ms) },
      { title: "Took", class: "num", cell: (c) => duration(taken(c)) },
      { title: "In", class: "wide num", cell: (c) => bytes(c.bytes_in) },
      { title: "Out", class: "wide num", cell: (c) => bytes(c.end?.bytes_out) },
    ], "No calls yet that match.");
    this.element = el("div", {},
      el("form", { class: "filters", "aria-label": "Filter", onsubmit: (e) => e.preventDefault() },
        field("Backend", this.backend), field("Outcome", this.result), field("Slower than", this.slower),
        field("Search", this.text), this.pause),
      this.note, this.table.element);
    for (const input of [this.backend, this.result, this.slower]) input.addEventListener("change", () => this.restart());
    this.text.addEventListener("input", this.draw);
  }

  // filter is the filter that the gateway applies.
  get filter() {
    return { backend: this.backend.value, outcome: this.result.value,
      slower: this.slower.validity.valid ? this.slower.value : "" };
  }

  get events() { return { types: "call", ...this.filter }; }

  show() {
    this.calls.clear();
    this.timer = setInterval(this.draw, 1000); // the time of those in flight
  }

  hide() { clearInterval(this.timer); }

  // restart applies a changed filter of the gateway.
  restart() {
    this.calls.clear();
    this.draw();
    this.reopen();
  }

  // opened adds the calls before the first event. Those that have both are the same.
  async opened() {
    const filter = query(this.filter);
    try {
      const list = await get(`/api/v1/calls?${query({ ...this.filter, limit: maxRows })}`);
      if (filter !== query(this.filter)) return;
      for (const c of [...list.recent, ...list.in_flight]) this.add(c);
    } catch (e) {
      setText(this.note, e.message);
    }
    this.draw();
  }

  handle(event) {
    if (event.status) setOptions(this.backend, event.status.backends.map((b) => b.name), "all backends");
    if (event.lost) this.lost += event.lost.calls;
    if (event.call) {
      this.add(event.call);
      if (this.paused) this.missed++;
    }
    this.draw();
  }

  // add adds a call, or its end.
  add(c) {
    if (this.calls.get(c.call)?.end && !c.end) return;
    this.calls.set(c.call, c);
    if (this.calls.size > 3 * maxRows) this.latest(); // a hidden tab draws nothing
  }

  // latest returns the latest calls, and forgets the others.
  latest() {
    const all = [...this.calls.values()].sort((a, b) => (a.started < b.started ? 1 : -1));
    for (const c of all.splice(maxRows)) this.calls.delete(c.call);
    return all;
  }

  setPaused(paused) {
    this.paused = paused;
    this.missed = 0;
    this.pause.setAttribute("aria-pressed", String(paused));
    setText(this.pause, paused ? "Continue" : "Pause");
    this.draw();
  }

  render() {
    const notes = [];
    if (this.paused) notes.push(`Paused; ${number(this.missed)} events since.`);
    if (this.lost) notes.push(`${number(this.lost)} calls are not shown because they were too many at a time; the audit log has them.`);
    setText(this.note, notes.join(" "));
    if (this.paused) return;
    const text = this.text.value.toLowerCase();
    const shown = this.latest().filter((c) => text === "" ||
      [c.call, c.name, c.backend_name, c.client, c.principal, c.session, c.id, c.method].some((v) => v?.toLowerCase().includes(text)));
    this.table.show(shown, (c) => c.call);
  }

  name(c) {
    return [el("button", { class: "link", onclick: () => this.open(c.call) }, untrusted(c.name, "bdi", 120)),
      c.backend && el("span", { class: "narrow secondary" }, untrusted(c.backend, "bdi", 60))].filter(Boolean);
  }

  // open shows everything that is known about a call.
  async open(id) {
    let c = this.calls.get(id);
    const dialog = openDialog("Call", true, el("p", {}, "Loading …"));
    try {
      c = await get(`/api/v1/calls/${encodeURIComponent(id)}`);
    } catch (e) {
      dialog.lastChild.textContent = e.message;
      if (!c) return;
    }
    const end = c.end ?? {};
    openDialog(untrusted(c.name, "bdi", 120), true, facts([
      ["Outcome", outcome(c)], ["Reason", end.reason && untrusted(end.reason)], ["Code", end.code && String(end.code)],
      ["Confirmation", end.confirmation],
      ["Call id", el("code", {}, c.call)], ["Id of the client", untrusted(c.id, "code", 200)],
      ["Id at the backend", end.backend_id && untrusted(end.backend_id, "code", 200)],
      ["Session", c.session && untrusted(c.session, "code", 200)], ["Trace", c.trace_id && el("code", {}, c.trace_id)],
      ["Client", c.client && untrusted(c.client)], ["Principal", c.principal && untrusted(c.principal)],
      ["Method", c.method], ["Backend", c.backend && untrusted(c.backend)],
      ["Name there", c.backend_name && untrusted(c.backend_name)],
      ["Received", clock(c.started, true)], ["Timing", timing(c)],
      ["Rounds", end.rounds && number(end.rounds)], ["Progress", end.progress && `${number(end.progress)} notifications`],
      ["Reconnects", end.reconnects && number(end.reconnects)],
      ["Bytes", `${bytes(c.bytes_in)} in, ${bytes(end.bytes_out)} out`],
    ]), el("h3", {}, "Log lines of the backend at that time"),
    c.logs?.length ? el("ol", { class: "log", tabindex: "0", "aria-label": "Log lines" }, c.logs.map(logLine)) :
      el("p", { class: "empty" }, "None in memory."));
  }
}

// timing shows how long a call waited and ran, as text and as a bar.
function timing(c) {
  if (!c.end) return `in flight for ${duration(taken(c))}`;
  const total = c.end.queued_ms + c.end.dur_ms || 1;
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span", { class: "queued" }), el("span", { class: "ran" }));
  bar.firstChild.style.flexGrow = c.end.queued_ms / total;
  bar.lastChild.style.flexGrow = c.end.dur_ms / total;
  return [`queued ${duration(c.end.queued_ms)}, ran ${duration(c.end.dur_ms)}`, bar];
}
