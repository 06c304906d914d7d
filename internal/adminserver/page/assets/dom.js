// Elements and formats. Text gets into the document as text only: nothing here reads markup.

// el returns an element. Properties that begin with "on" are listeners; others are attributes.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== ""));
  return e;
}

// untrusted returns a text of a backend or client, isolated so that its direction and control
// characters do not affect what is around it.
export function untrusted(text, tag = "bdi", most = 2000) {
  return el(tag, { dir: "auto", class: "untrusted" }, visible(text, most));
}

// visible replaces characters that cannot be seen, such as those that change the direction of text.
export function visible(text, most = 2000) {
  text = String(text ?? "");
  if (text.length > most) text = `${text.slice(0, most)}… (${number(text.length)} characters)`;
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) =>
    c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0).toString(16)}}`);
}

export const number = (n) => (n ?? 0).toLocaleString("en");

// duration formats milliseconds.
export function duration(ms) {
  if (ms === undefined || ms === null) return "–";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60e3) return `${(ms / 1000).toFixed(1)} s`;
  return span(ms);
}

// span formats a longer time in milliseconds.
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function bytes(n) {
  if (n === undefined) return "–";
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

const pad = (n, width = 2) => String(n).padStart(width, "0");

// clock formats a time of the API as the local time of day.
export function clock(text, withMilliseconds = false) {
  const t = new Date(text);
  if (!text || isNaN(t)) return "–";
  const day = t.toDateString() === new Date().toDateString() ? "" :
    `${pad(t.getMonth() + 1)}-${pad(t.getDate())} `;
  const time = `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
  return day + time + (withMilliseconds ? `.${pad(t.getMilliseconds(), 3)}` : "");
}

// ago formats the time since a time of the API.
export const ago = (text) => (text ? span(Date.now() - new Date(text)) : "–");

// setText changes a text only if it differs, so that a screen reader says it once.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// A Table shows rows, each with a key. Rows that stay are the same elements, so that the focus and
// a selection stay too.
export class Table {
  // columns: {title, class, cell: (row) => text or node, key: (row) => text if cell makes nodes}
  constructor(caption, columns, empty) {
    this.columns = columns;
    this.rows = new Map(); // by key: {element, cells, texts}
    this.body = el("tbody");
    this.empty = el("p", { class: "empty" }, empty);
    this.element = el("div", { class: "table" },
      el("table", {}, el("caption", { class: "hidden" }, caption),
        el("thead", {}, el("tr", {}, columns.map((c) =>
          el("th", { scope: "col", class: c.class }, c.title)))),
        this.body), this.empty);
  }

  show(items, keyOf) {
    const keep = new Set();
    let next = this.body.firstChild;
    for (const item of items) {
      const key = keyOf(item);
      keep.add(key);
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, row = this.newRow());
      this.fill(row, item);
      if (row.element === next) next = next.nextSibling;
      else this.body.insertBefore(row.element, next);
    }
    for (const [key, row] of this.rows) {
      if (keep.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    this.empty.hidden = items.length > 0;
    this.element.firstChild.hidden = items.length === 0;
  }

  newRow() {
    const cells = this.columns.map((c) => el(c.head ? "th" : "td", { class: c.class, scope: c.head && "row" }));
    return { element: el("tr", {}, cells), cells, texts: [] };
  }

  fill(row, item) {
    this.columns.forEach((c, i) => {
      const value = c.cell(item);
      const text = c.key ? c.key(item) : typeof value === "string" ? value : undefined;
      if (text !== undefined && row.texts[i] === text) return;
      row.texts[i] = text;
      row.cells[i].replaceChildren(...[value].flat().filter((v) => v !== undefined));
    });
  }
}

// once returns a function that calls draw in the next frame, at most every 200 ms.
export function once(draw) {
  let waiting = false, last = 0;
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => requestAnimationFrame(() => {
      waiting = false;
      last = performance.now();
      draw();
    }), Math.max(0, last + 200 - performance.now()));
  };
}

// field returns a label with an input or select.
export function field(label, input) {
  return el("label", { class: "field" }, el("span", {}, label), input);
}

// select returns a select element with these values; "" has the text all.
export function select(values, all) {
  const s = el("select");
  setOptions(s, values, all);
  return s;
}

export function setOptions(s, values, all) {
  const wanted = ["", ...values];
  if (wanted.join("\0") === [...s.options].map((o) => o.value).join("\0")) return;
  const chosen = s.value;
  s.replaceChildren(...wanted.map((v) => el("option", { value: v }, v === "" ? all : visible(v, 60))));
  s.value = wanted.includes(chosen) ? chosen : "";
}

const dialog = () => document.getElementById("dialog");

// openDialog shows a modal dialog. It returns its content element.
export function openDialog(title, wide, ...content) {
  const d = dialog();
  d.className = wide ? "wide" : "";
  d.replaceChildren(el("div", { class: "dialog-head" },
    el("h2", { id: "dialog-title", tabindex: "-1" }, title),
    el("button", { onclick: () => d.close() }, "Close")), ...content);
  if (!d.open) d.showModal();
  d.querySelector("h2").focus();
  return d;
}

export const closeDialog = () => dialog().close();
