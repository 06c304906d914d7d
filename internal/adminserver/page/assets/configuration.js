// The configuration in force, with secrets masked, and its differences from the file.

import { get, post } from "./api.js";
import { el, setText, Table, untrusted } from "./dom.js";

export class ConfigurationView {
  id = "configuration";
  title = "Configuration";
  events = {};

  constructor() {
    this.file = el("p");
    this.note = el("p", { role: "status", class: "message" });
    this.reload = el("button", { onclick: () => this.reloadFile() }, "Reload the file");
    this.differences = new Table("Differences of the file from the configuration in force", [
      { title: "What", head: true, class: "name", cell: (d) => untrusted(d.what, "bdi", 120), key: (d) => d.what },
      { title: "Change", cell: (d) => d.change },
      { title: "Detail", class: "half", cell: (d) => untrusted(d.detail || "–", "bdi", 500), key: (d) => d.detail ?? "" },
    ], "The file has no changes that are not in force.");
    this.settings = el("div");
    this.element = el("div", {}, this.file, el("p", {}, this.reload), this.note,
      el("h2", { class: "section" }, "Differences from the file"), this.differences.element, this.settings);
  }

  show() { this.load(); }

  handle(event) {
    const state = event.status && JSON.stringify(event.status.configuration);
    if (state && this.state !== undefined && state !== this.state) this.load();
    if (state) this.state = state;
  }

  async load() {
    let c;
    try {
      c = await get("/api/v1/configuration");
    } catch (e) {
      return setText(this.note, e.message);
    }
    this.file.replaceChildren(c.state.file ? "From the file " : "There is no file; this is the demo.", c.state.file ? untrusted(c.state.file, "code", 500) : "");
    this.differences.show(c.differences ?? [], (d) => [d.what, d.change, d.detail].join("\0"));
    const groups = new Map([["", []]]);
    for (const s of c.settings ?? []) {
      const name = s.backend ?? "";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(s);
    }
    this.settings.replaceChildren(...[...groups].filter(([, all]) => all.length).flatMap(([name, all]) => [
      el("h2", { class: "section" }, name ? el("span", {}, "Backend ", untrusted(name, "bdi", 60)) : "Gateway"),
      el("dl", { class: "settings" }, all.flatMap((s) => [el("dt", {}, untrusted(s.key, "code", 200)), el("dd", {}, untrusted(s.value, "code"))])),
    ]));
  }

  async reloadFile() {
    this.reload.disabled = true;
    setText(this.note, "Reloading; calls in flight at changed backends end first.");
    try {
      const r = await post("/api/v1/reload");
      setText(this.note, r.problems?.length ? `Nothing was changed: ${r.problems.join("; ")}` :
        r.changes?.length ? `Applied: ${r.changes.map((c) => `${c.what} ${c.change}`).join(", ")}` : "There was nothing to change.");
    } catch (e) {
      setText(this.note, e.message);
    }
    this.reload.disabled = false;
    this.load();
  }
}
