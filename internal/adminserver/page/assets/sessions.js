// The sessions of clients.

import { ago, clock, el, number, once, Table, untrusted } from "./dom.js";

export class SessionsView {
  id = "sessions";
  title = "Sessions";
  events = {};
  draw = once(() => this.render());

  constructor(shared) {
    this.shared = shared;
    this.principals = el("p", { class: "message" });
    this.table = new Table("Sessions", [
      { title: "Client", head: true, class: "name grow", cell: (s) => [untrusted(s.client || "–", "bdi", 80),
        el("span", { class: "narrow secondary" }, `${s.transport}${s.revision ? ` · ${s.revision}` : ""}`)], key: (s) => s.id + s.client + s.revision },
      { title: "Principal", cell: (s) => (s.principal ? untrusted(s.principal, "bdi", 60) : "–"), key: (s) => s.principal ?? "" },
      { title: "Profiles", class: "wide", cell: (s) => s.profiles?.join(", ") || "–" },
      { title: "Transport", class: "wide", cell: (s) => s.transport },
      { title: "Revision", class: "wide num", cell: (s) => s.revision || "–" },
      { title: "Session", class: "wide mono", cell: (s) => (s.stateless ? "none (stateless)" : untrusted(s.id, "bdi", 40)), key: (s) => s.id },
      { title: "Since", class: "wide num", cell: (s) => (s.started ? clock(s.started) : "–") },
      { title: "Last request", class: "num", cell: (s) => (s.last_request ? `${ago(s.last_request)} ago` : "–") },
      { title: "In flight", class: "num", cell: (s) => number(s.in_flight) },
    ], "No client is connected.");
    this.element = el("div", {}, this.principals, this.table.element);
  }

  show() { this.render(); }
  handle(event) { if (event.status) this.draw(); }

  render() {
    if (!this.shared.status) return;
    const { sessions } = this.shared.status;
    this.table.show(sessions, (s) => s.id + (s.client ?? "") + (s.principal ?? ""));
    const counts = new Map();
    for (const s of sessions) if (s.principal) counts.set(s.principal, (counts.get(s.principal) ?? 0) + 1);
    this.principals.replaceChildren(...(counts.size ? ["By principal: ", ...[...counts].flatMap(([name, n], i) =>
      [i ? ", " : "", untrusted(name, "bdi", 60), ` ${number(n)}`])] : []));
  }
}
