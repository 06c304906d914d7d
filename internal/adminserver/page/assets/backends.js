// The backends, with the actions restart, stop and start.

import { post } from "./api.js";
import { ago, bytes, closeDialog, clock, duration, el, number, once, openDialog, setText, Table, untrusted } from "./dom.js";

// mark returns the state of a backend: a symbol, whose shape says how it is, and its name.
export function mark(state, healthy) {
  const kind = !healthy ? "bad" : state === "ready" ? "good" : state === "starting" ? "busy" : "idle";
  const symbol = { good: "●", bad: "▲", busy: "◐", idle: "○" }[kind];
  return el("span", { class: `state ${kind}` }, el("span", { "aria-hidden": "true" }, symbol), ` ${state}`);
}

const isStopped = (b) => b.state === "stopped by user";

export class BackendsView {
  id = "backends";
  title = "Backends";
  events = {};
  draw = once(() => this.render());

  constructor(shared) {
    this.shared = shared;
    this.busy = new Map(); // actions that are not done, by backend
    this.message = el("p", { role: "status", class: "message" });
    this.table = new Table("Backends", [
      { title: "Name", head: true, class: "name", cell: (b) => this.name(b), key: (b) => b.name },
      { title: "State", class: "grow", cell: (b) => this.state(b), key: stateKey },
      { title: "Since", class: "wide num", cell: (b) => (b.since ? `${ago(b.since)}` : "–") },
      { title: "Tools", class: "wide num", cell: (b) => number(b.lists.tools) },
      { title: "Calls", class: "wide num", cell: (b) => number(b.calls.calls) },
      { title: "Errors", class: "wide num", cell: (b) => number(b.calls.errors) },
      { title: "In flight", class: "wide num", cell: (b) => number(b.calls.in_flight) },
      { title: "p50", class: "wide num", cell: (b) => duration(b.calls.p50_ms) },
      { title: "p99", class: "wide num", cell: (b) => duration(b.calls.p99_ms) },
      { title: "Restarts", class: "wide num", cell: (b) => number(b.restarts) },
      { title: "Actions", class: "actions", cell: (b) => this.actions(b), key: (b) => `${b.state} ${this.busy.get(b.name)}` },
    ], "There are no backends in the configuration.");
    this.element = el("div", {}, this.message, this.table.element);
  }

  show() { this.render(); }
  handle(event) { if (event.status) this.draw(); }

  render() {
    if (this.shared.status) this.table.show(this.shared.status.backends, (b) => b.name);
  }

  name(b) {
    return el("button", { class: "link", onclick: () => this.open(b.name) }, untrusted(b.name));
  }

  state(b) {
    return [mark(b.state, b.healthy),
      b.reason && el("span", { class: "reason clamp" }, untrusted(b.reason, "bdi", 300)),
      b.next_try && el("span", { class: "reason" }, `next try ${clock(b.next_try)}`),
      el("span", { class: "narrow secondary" }, [`${number(b.lists.tools)} tools`, `${number(b.calls.calls)} calls`,
        `${number(b.calls.errors)} errors`, b.calls.p50_ms && `p50 ${duration(b.calls.p50_ms)}`].filter(Boolean).join(" · ")),
    ].filter(Boolean);
  }

  actions(b) {
    const doing = this.busy.get(b.name);
    if (doing) return el("span", { class: "doing" }, `${doing} …`);
    const button = (action, text, act) =>
      el("button", { "data-action": action, "aria-label": `${text} ${b.name}`, onclick: act }, text);
    if (b.state === "disabled" || b.state === "misconfigured") return "";
    if (isStopped(b)) return button("start", "Start", () => this.act(b.name, "start"));
    return el("span", { class: "buttons" },
      button("restart", "Restart", () => this.act(b.name, "restart")),
      button("stop", "Stop", () => this.confirmStop(b.name)));
  }

  // confirmStop asks before clients lose tools.
  confirmStop(name) {
    const b = this.shared.status.backends.find((one) => one.name === name);
    openDialog(el("span", {}, "Stop ", untrusted(name), "?"), false,
      el("p", {}, `Clients then lose its ${number(b?.lists.tools)} tools until it is started again. ` +
        `Calls in flight (${number(b?.calls.in_flight)}) end first.`),
      el("p", { class: "buttons" },
        el("button", { class: "danger", "data-action": "confirm", onclick: () => { closeDialog(); this.act(name, "stop"); } }, "Stop it"),
        el("button", { onclick: closeDialog }, "Cancel")));
  }

  async act(name, action) {
    const doing = { restart: "restarting", stop: "stopping", start: "starting" }[action];
    this.busy.set(name, doing);
    setText(this.message, `${name}: ${doing}; calls in flight end first`);
    this.render();
    try {
      const result = await post(`/api/v1/backends/${encodeURIComponent(name)}/${action}`);
      const i = this.shared.status.backends.findIndex((b) => b.name === name);
      if (i >= 0) this.shared.status.backends[i] = result.backend;
      setText(this.message, result.error ? `${name}: ${result.error}` : `${name}: ${result.backend.state}`);
    } catch (e) {
      setText(this.message, `${name}: ${e.message}`);
    }
    this.busy.delete(name);
    this.render();
    this.element.querySelectorAll("tbody tr").forEach((row) => { // the button that had the focus is gone
      if (document.activeElement === document.body && row.querySelector("th")?.textContent === name)
        row.querySelector(".actions button")?.focus();
    });
  }

  // open shows everything about a backend.
  open(name) {
    const b = this.shared.status.backends.find((one) => one.name === name);
    if (!b) return;
    const rows = [
      ["State", mark(b.state, b.healthy)], ["Since", b.since && `${clock(b.since)} (${ago(b.since)})`],
      ["Reason", b.reason && untrusted(b.reason)], ["Next try", b.next_try && clock(b.next_try)],
      ["Last error", b.last_error && [`${clock(b.last_error.time)} `, untrusted(b.last_error.text)]],
      ["Restarts", number(b.restarts)], ["Server", b.server && untrusted(b.server)], ["Revision of MCP", b.revision],
      ["Lists", `${number(b.lists.tools)} tools, ${number(b.lists.prompts)} prompts, ` +
        `${number(b.lists.resources)} resources, ${number(b.lists.templates)} templates`],
      ["Connections", `${number(b.connections)}, ${number(b.queued)} calls waiting`],
      ["Processes", b.pids?.join(", ")],
      ["Calls", `${number(b.calls.calls)}, ${number(b.calls.errors)} errors, ${number(b.calls.in_flight)} in flight`],
      ["Outcomes", b.calls.outcomes && Object.entries(b.calls.outcomes).map(([k, n]) => `${k} ${number(n)}`).join(", ")],
      ["Durations, last hour", `p50 ${duration(b.calls.p50_ms)}, p99 ${duration(b.calls.p99_ms)}`],
      ["Bytes", `${bytes(b.calls.bytes_in)} in, ${bytes(b.calls.bytes_out)} out`],
      ["Last error of a call", b.calls.last_error && [`${clock(b.calls.last_error.time)} `, untrusted(b.calls.last_error.text)]],
      ...(b.instances ?? []).map((i) => [`For ${i.principal}`, [mark(i.state, !i.reason), i.reason && untrusted(` ${i.reason}`)]]),
    ];
    openDialog(untrusted(b.name), true, facts(rows),
      el("p", {}, el("a", { href: "#logs", onclick: () => { sessionStorage.setItem("log-backend", b.name); closeDialog(); } }, "Its log lines")));
  }
}

const stateKey = (b) => [b.state, b.healthy, b.reason, b.next_try, b.lists.tools, b.calls.calls, b.calls.errors, b.calls.p50_ms].join("\0");

// facts returns a list of names and values, without those that are empty.
export function facts(rows) {
  return el("dl", {}, rows.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat());
}
