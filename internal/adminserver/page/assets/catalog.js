// The merged catalog: who owns each name and why, and what was repaired, left out or hidden.

import { get } from "./api.js";
import { el, field, number, once, select, setOptions, setText, Table, untrusted } from "./dom.js";

const maxRows = 500;
const kinds = ["tools", "prompts", "resources", "resourceTemplates"];
const kindNames = { tools: "tool", prompts: "prompt", resources: "resource", resourceTemplates: "template" };

export class CatalogView {
  id = "catalog";
  title = "Catalog";
  events = { types: "catalog" };
  draw = once(() => this.render());

  constructor() {
    this.list = { entries: [], problems: [] };
    this.text = el("input", { type: "search", placeholder: "name or description", spellcheck: "false" });
    this.kind = select(kinds, "all kinds");
    this.backend = select([], "all backends");
    this.note = el("p", { role: "status", class: "message" });
    this.entries = new Table("Entries of the merged catalog", [
      { title: "Name", head: true, class: "name", cell: (e) => [untrusted(e.name || "not listed", "bdi", 120),
        el("span", { class: "narrow secondary" }, untrusted(e.backend, "bdi", 60))], key: (e) => e.name + e.backend },
      { title: "Kind", class: "wide", cell: (e) => kindNames[e.kind] ?? e.kind },
      { title: "Owner", class: "wide", cell: (e) => untrusted(e.backend, "bdi", 60), key: (e) => e.backend },
      { title: "Name there", class: "wide name", cell: (e) => untrusted(e.own_name, "bdi", 120), key: (e) => e.own_name },
      { title: "Description, and why the name differs", class: "half", cell: (e) => [
        untrusted(e.description || "–", "bdi", 240),
        ...(e.why ? [el("span", { class: "reason" }, "why: ", untrusted(e.why, "bdi", 300))] : [])],
      key: (e) => `${e.description}\0${e.why}` },
    ], "Nothing matches.");
    this.problems = new Table("Repaired, left out or hidden", [
      { title: "Backend", class: "name", head: true, cell: (p) => untrusted(p.backend, "bdi", 60), key: (p) => p.backend },
      { title: "What", cell: (p) => p.what },
      { title: "Item", class: "name", cell: (p) => untrusted(p.item, "bdi", 120), key: (p) => p.item },
      { title: "Why", class: "half", cell: (p) => untrusted(p.why, "bdi", 300), key: (p) => p.why },
    ], "Nothing was repaired, left out or hidden.");
    this.element = el("div", {},
      el("form", { class: "filters", role: "search", onsubmit: (e) => e.preventDefault() },
        field("Search", this.text), field("Kind", this.kind), field("Backend", this.backend)),
      this.note, this.entries.element, el("h2", { class: "section" }, "Repaired, left out or hidden"), this.problems.element);
    for (const input of [this.text, this.kind, this.backend]) input.addEventListener("input", this.draw);
  }

  opened() { this.load(); }

  handle(event) {
    if (event.catalog) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), 500);
    }
  }

  async load() {
    try {
      this.list = await get("/api/v1/catalog");
    } catch (e) {
      return setText(this.note, e.message);
    }
    setOptions(this.backend, [...new Set([...this.list.entries, ...this.list.problems].map((e) => e.backend))].sort(), "all backends");
    this.draw();
  }

  render() {
    const text = this.text.value.toLowerCase(), { value: kind } = this.kind, { value: backend } = this.backend;
    const matches = (...fields) => text === "" || fields.some((f) => f?.toLowerCase().includes(text));
    const entries = (this.list.entries ?? []).filter((e) => (!kind || e.kind === kind) && (!backend || e.backend === backend) &&
      matches(e.name, e.own_name, e.description, e.backend));
    const problems = (this.list.problems ?? []).filter((p) => (!backend || p.backend === backend) && matches(p.item, p.why, p.backend));
    setText(this.note, `${number(entries.length)} of ${number(this.list.entries?.length)} entries` +
      (entries.length > maxRows ? `; the first ${maxRows} are shown` : ""));
    this.entries.show(entries.slice(0, maxRows), (e) => [e.kind, e.backend, e.own_name].join("\0"));
    this.problems.show(problems.slice(0, maxRows), (p) => [p.backend, p.what, p.item, p.why].join("\0"));
  }
}
