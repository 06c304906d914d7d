// Lines of the log of the gateway and of its backends.

import { clock, el, field, number, once, select, setOptions, setText, untrusted } from "./dom.js";

const maxLines = 1000;

// logLine returns a line as a list item.
export function logLine(l) {
  return el("li", { class: `level-${l.level.toLowerCase()}` },
    el("time", { datetime: l.time }, clock(l.time, true)), " ",
    el("span", { class: "level" }, l.level.toUpperCase().padEnd(5)), " ",
    l.backend ? el("span", { class: "from" }, untrusted(l.backend, "bdi", 40)) : "", l.backend ? " " : "",
    untrusted(l.attrs ? `${l.msg} ${l.attrs}` : l.msg, "bdi", 4000));
}

export class LogsView {
  id = "logs";
  title = "Logs";
  draw = once(() => this.render());

  constructor(shared, reopen) {
    Object.assign(this, { shared, reopen, waiting: [], lost: 0, paused: false });
    this.backend = select([], "gateway and all backends");
    this.level = select(["info", "warn", "error"], "all levels");
    this.text = el("input", { type: "search", placeholder: "text", spellcheck: "false" });
    this.pause = el("button", { "aria-pressed": "false", onclick: () => this.setPaused(!this.paused) }, "Pause");
    this.note = el("p", { role: "status", class: "message" });
    this.list = el("ol", { class: "log tall", tabindex: "0", "aria-label": "Log lines, the latest last" });
    this.element = el("div", {},
      el("form", { class: "filters", "aria-label": "Filter", onsubmit: (e) => e.preventDefault() },
        field("Backend", this.backend), field("Level", this.level), field("Search", this.text), this.pause),
      this.note, this.list);
    for (const input of [this.backend, this.level]) input.addEventListener("change", () => this.restart());
    this.text.addEventListener("input", () => [...this.list.children].forEach((li) => this.match(li)));
  }

  get events() { return { types: "log", backend: this.backend.value, level: this.level.value, limit: 500 }; }

  show() {
    const wanted = sessionStorage.getItem("log-backend");
    sessionStorage.removeItem("log-backend");
    this.setBackends();
    if (wanted) this.backend.value = wanted;
    this.clear();
  }

  setBackends() {
    setOptions(this.backend, this.shared.status?.backends.map((b) => b.name) ?? [], "gateway and all backends");
  }

  clear() {
    this.list.replaceChildren();
    this.waiting = [];
    this.last = undefined;
  }

  restart() {
    this.clear();
    this.reopen();
  }

  handle(event) {
    if (event.status) this.setBackends();
    if (event.lost) this.lost += event.lost.logs;
    if (event.log) {
      this.waiting.push(event.log);
      if (this.waiting.length > maxLines) this.waiting.shift();
    }
    this.draw();
  }

  setPaused(paused) {
    this.paused = paused;
    this.pause.setAttribute("aria-pressed", String(paused));
    setText(this.pause, paused ? "Continue" : "Pause");
    this.draw();
  }

  match(li) {
    li.hidden = !li.textContent.toLowerCase().includes(this.text.value.toLowerCase());
  }

  render() {
    const notes = [];
    if (this.paused) notes.push(`Paused; ${number(this.waiting.length)} lines since.`);
    if (this.lost) notes.push(`${number(this.lost)} lines are not shown because they were too many at a time.`);
    setText(this.note, notes.join(" "));
    if (this.paused || !this.waiting.length) return;
    const atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    // After an interruption the gateway sends the last lines again.
    const lines = this.waiting.filter((l) => !this.last || l.time > this.last);
    if (lines.length) this.last = lines.at(-1).time;
    this.waiting = [];
    const items = lines.map(logLine);
    items.forEach((li) => this.match(li));
    this.list.append(...items);
    while (this.list.children.length > maxLines) this.list.firstChild.remove();
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}
