// The page: login, views, and the stream of events that feeds them.

import { Stream, get, login, post } from "./api.js";
import { clock, el, setText, span, number, visible } from "./dom.js";
import { BackendsView } from "./backends.js";
import { CallsView } from "./calls.js";
import { SessionsView } from "./sessions.js";
import { CatalogView } from "./catalog.js";
import { PlotsView } from "./plots.js";
import { LogsView } from "./logs.js";
import { ConfigurationView } from "./configuration.js";

const byId = (id) => document.getElementById(id);

// state is what all views share.
const state = { status: undefined };
// A view has: id, title, element, events (parameters of the stream), and the methods show, hide and
// handle(event); and opened, which is called when the events have begun, also after an interruption.
const views = [BackendsView, CallsView, SessionsView, CatalogView, PlotsView, LogsView, ConfigurationView]
  .map((View) => new View(state, reopen));
let current;

const stream = new Stream(handle, showConnection);

function handle(event, isFirst) {
  if (event.status) {
    state.status = event.status;
    showGateway();
  }
  if (isFirst) current.opened?.();
  current.handle(event);
}

// reopen asks for the events of the current view, whose filters have changed.
function reopen() {
  stream.open({ ...current.events, types: ["status", current.events.types].filter(Boolean).join(",") });
}

function showConnection(what, lastSeen) {
  const e = byId("connection");
  e.dataset.state = what;
  if (what === "connected") setText(e, "connected");
  else setText(e, lastSeen ? `connection lost; last seen ${clock(lastSeen)}; trying again` :
    "no connection; trying again");
  document.body.classList.toggle("stale", what !== "connected");
}

function showGateway() {
  const { gateway: g, configuration: c, totals: t, backends } = state.status;
  const broken = backends.filter((b) => !b.healthy).length;
  setText(byId("gateway"), visible(`${g.version} · process ${g.pid} · up ${span(Date.now() - new Date(g.started))} · ` +
    `${number(t.calls)} calls, ${number(t.errors)} errors`, 200));
  document.title = broken ? `(${broken}) MCP gateway` : "MCP gateway";
  const problems = [];
  if (c.problem) problems.push(`The last reload changed nothing: ${visible(c.problem)}`);
  if (c.need_restart?.length) problems.push(`Changes apply after a restart of the gateway: ${c.need_restart.join(", ")}`);
  if (c.differs) problems.push("The configuration file has changed since it was read.");
  byId("problem").hidden = problems.length === 0;
  setText(byId("problem"), problems.join(" "));
}

// route shows the view that the address names.
function route() {
  const view = views.find((v) => `#${v.id}` === location.hash) ?? current ?? views[0];
  if (view === current) return;
  current?.hide?.();
  current = view;
  byId("main").replaceChildren(el("h1", {}, view.title), view.element);
  for (const link of byId("views").querySelectorAll("a")) {
    if (link.hash === `#${view.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.show?.();
  reopen();
}

function start() {
  byId("login").hidden = true;
  byId("page").hidden = false;
  current = undefined;
  route();
}

function askForToken() {
  stream.close();
  byId("dialog").close();
  byId("page").hidden = true;
  byId("login").hidden = false;
  byId("token").focus();
}

byId("views").append(...views.map((v) => el("li", {}, el("a", { href: `#${v.id}` }, v.title))));
byId("login-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  const button = e.target.querySelector("button"), problem = byId("login-error");
  button.disabled = true;
  setText(problem, "");
  try {
    await login(byId("token").value);
    byId("token").value = "";
    start();
  } catch (err) {
    setText(problem, err.status ? `Not logged in: ${err.message}.` : "The gateway does not respond.");
    byId("token").select();
  } finally {
    button.disabled = false;
  }
});
byId("logout").addEventListener("click", async () => {
  try { await post("/logout"); } catch { /* it is logged out already, or the gateway has ended */ }
  askForToken();
});
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault();
  byId("main").focus();
});
document.addEventListener("logged-out", askForToken);
window.addEventListener("hashchange", route);

const { logged_in: isLoggedIn } = await get("/login").catch(() => ({ logged_in: true })); // the stream tries again
if (isLoggedIn) start();
else askForToken();
