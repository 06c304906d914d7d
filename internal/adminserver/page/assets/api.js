// Requests to the admin API, and its stream of events.

// A Refused is the error of a request that the gateway has refused.
export class Refused extends Error {
  constructor(status, text, hint) {
    super(hint ? `${text}; ${hint}` : text);
    this.status = status;
  }
}

async function request(method, path, body) {
  const response = await fetch(path, { method, body, credentials: "same-origin", cache: "no-store" });
  if (response.ok) return response.status === 204 ? null : response.json();
  const text = await response.text();
  let e = {};
  try { e = JSON.parse(text); } catch { e.error = text.trim(); }
  const refused = new Refused(response.status, e.error || response.statusText, e.hint);
  if (refused.status === 401 && path !== "/login") document.dispatchEvent(new Event("logged-out"));
  throw refused;
}

export const get = (path) => request("GET", path);
export const post = (path) => request("POST", path);
export const login = (token) => request("POST", "/login", new URLSearchParams({ token }));

// query returns the text of a query without empty values.
export function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value) q.set(name, value);
  return q.toString();
}

const eventTypes = ["status", "call", "log", "catalog", "lost"];

// A Stream receives events, and connects again after it was interrupted.
export class Stream {
  // onEvent gets each event, and whether it is the first one of a connection: what happens from
  // then on causes events. onState gets "connected", "waiting" or "closed", and the time of the
  // last sign of the gateway.
  constructor(onEvent, onState) {
    Object.assign(this, { onEvent, onState, tries: 0, lastSeen: undefined });
  }

  // open replaces the events that are received.
  open(parameters) {
    this.parameters = parameters;
    this.tries = 0;
    this.connect();
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
  }

  connect() {
    this.close();
    let isFirst = true;
    const source = this.source = new EventSource(`/api/v1/events?${query(this.parameters)}`);
    for (const type of eventTypes) {
      source.addEventListener(type, (e) => {
        this.lastSeen = new Date();
        this.tries = 0;
        this.onEvent(JSON.parse(e.data), isFirst);
        isFirst = false;
      });
    }
    source.onopen = () => {
      this.lastSeen = new Date();
      this.onState("connected", this.lastSeen);
    };
    source.onerror = () => this.retry();
  }

  // retry connects again after a time. A request tells whether the login has ended.
  retry() {
    this.close();
    this.onState("waiting", this.lastSeen);
    const delay = Math.min(10e3, 500 * 2 ** this.tries++);
    this.timer = setTimeout(async () => {
      try {
        await get("/api/v1/status");
        this.connect();
      } catch (e) {
        if (e.status !== 401) this.retry();
      }
    }, delay);
  }
}
