// The npm SDK's clients for the matrix: matrix-client.mjs v1|v2 REVISION. Its stdin is one line of JSON for each server,
// {"cell", "url" or "command" and "env", "features", "n", "notes"}. It connects to all of them at once, and prints a line
// {"cell", "feature", "error"} for each feature, where error is empty on success.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as after } from "node:timers/promises";

const [version, revision] = process.argv.slice(2);
const modern = revision === "2026-07-28";
const timeout = 15_000;
const news = "matrix://news";
const capabilities = { elicitation: {}, sampling: {} };

const within = (promise, what) => Promise.race([promise, new Promise((_, reject) => {
  setTimeout(() => reject(new Error(what + ": timeout")), timeout).unref();
})]);

// Notifications collects notifications: first(f) waits for the first one that f accepts, including earlier ones.
class Notifications {
  #all = [];
  #waits = [];
  add(what) {
    this.#all.push(what);
    this.#waits = this.#waits.filter(({ f, resolve }) => !f(what) || resolve(what));
  }
  first(f, what) {
    const known = this.#all.find(f);
    if (known !== undefined) return known;
    return within(new Promise((resolve) => this.#waits.push({ f, resolve: (w) => { resolve(w); return false; } })), what);
  }
  clear() { this.#all = []; }
}

const elicited = async () => ({ action: "accept", content: { name: "Ada" } });
const sampled = async () => ({ role: "assistant", model: "m", content: { type: "text", text: "engine" } });

// The SDK expects a command and its arguments, and the environment as an object.
const spawned = ({ command: [command, ...args], env }) => ({
  command, args, env: Object.fromEntries(env.map((e) => [e.slice(0, e.indexOf("=")), e.slice(e.indexOf("=") + 1)])), stderr: "inherit",
});

async function dialV1(run, notifications) {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  const client = new Client({ name: "npm-v1", version: "1" }, { capabilities });
  client.setRequestHandler(types.ElicitRequestSchema, elicited);
  client.setRequestHandler(types.CreateMessageRequestSchema, sampled);
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (n) => notifications.add("updated " + n.params.uri));
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => notifications.add("changed"));
  const transport = run.command
    ? new StdioClientTransport(spawned(run))
    : new StreamableHTTPClientTransport(new URL(run.url));
  await client.connect(transport);
  return {
    client,
    call: (name, n, options) => client.callTool({ name, arguments: { n } }, undefined, options),
    subscribe: () => client.subscribeResource({ uri: news }),
    close: async () => { await transport.terminateSession?.(); await client.close(); },
  };
}

async function dialV2(run, notifications) {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const client = new Client({ name: "npm-v2", version: "1" }, {
    capabilities, versionNegotiation: { mode: modern ? { pin: revision } : "legacy" },
  });
  client.setRequestHandler("elicitation/create", elicited);
  client.setRequestHandler("sampling/createMessage", sampled);
  client.setNotificationHandler("notifications/resources/updated", (n) => notifications.add("updated " + n.params.uri));
  client.setNotificationHandler("notifications/tools/list_changed", () => notifications.add("changed"));
  const transport = run.command
    ? new StdioClientTransport(spawned(run))
    : new StreamableHTTPClientTransport(new URL(run.url));
  await client.connect(transport);
  let listening = modern && await client.listen({ toolsListChanged: true });
  return {
    client,
    call: (name, n, options) => client.callTool({ name, arguments: { n } }, options),
    subscribe: async () => {
      if (!modern) return client.subscribeResource({ uri: news });
      await listening.close();
      listening = await client.listen({ toolsListChanged: true, resourceSubscriptions: [news] });
    },
    close: async () => {
      if (modern) await listening.close();
      else await transport.terminateSession?.();
      await client.close();
    },
  };
}

const noted = (path) => { try { return readFileSync(path, "utf8").split("\n"); } catch { return []; } };
const text = (result) => result.content[0].text;
const want = (got, expected) => { if (got !== expected) throw new Error(`${got}, want ${expected}`); };

const checks = {
  async list({ client }) {
    const names = (await client.listTools()).tools.map((t) => t.name);
    if (!names.includes("progress")) throw new Error("tools: " + names);
  },
  async progress({ call }, n) {
    const seen = [];
    const released = [];
    const result = await within(call("progress", n, {
      onprogress: (p) => { seen.push(`${p.progress}/${p.total}`); released.push(call("release", n)); },
    }), "progress");
    await Promise.all(released);
    want(seen.join(" "), "1/3 2/3 3/3");
    want(text(result), "done " + n);
  },
  async cancel({ call, notes }, n) {
    const abort = new AbortController();
    const result = call("hang", n, { signal: abort.signal, onprogress: () => abort.abort("enough") });
    let error;
    await within(result.catch((e) => { error = e; }), "the end of hang");
    if (!abort.signal.aborted) throw error ?? new Error("hang returned a result");
    for (let waited = 0; !noted(notes).includes("cancelled " + n); waited += 20) {
      if (waited > 5_000) throw new Error("the server did not receive the cancellation");
      await after(20);
    }
  },
  async elicitation({ call }, n) { want(text(await call("ask", n)), "accept Ada"); },
  async sampling({ call }, n) { want(text(await call("sample", n)), "engine"); },
  async update({ call, subscribe, notifications }, n) {
    await subscribe();
    await call("touch", n);
    await notifications.first((w) => w === "updated " + news, "update");
  },
  async list_changed({ call, notifications }, n) {
    notifications.clear();
    await call("grow", n);
    await notifications.first((w) => w === "changed", "list_changed");
  },
};

async function connectAndCheck(run) {
  const { cell, features, n, notes } = run;
  const report = (feature, error) => console.log(JSON.stringify({ cell, feature, error }));
  const why = (e) => (e?.message ?? String(e)) || "an error without a message";
  const notifications = new Notifications();
  let connection;
  try {
    connection = await within((version === "v1" ? dialV1 : dialV2)(run, notifications), "connect");
  } catch (e) {
    for (const feature of features) report(feature, "connect: " + why(e));
    return;
  }
  for (const feature of features) {
    try {
      await within(checks[feature]({ ...connection, notifications, notes }, `${n}-${feature}`), feature);
      report(feature, "");
    } catch (e) {
      report(feature, why(e));
    }
  }
  await within(connection.close(), "close").catch((e) => report("close", why(e)));
}

const runs = [];
for await (const line of createInterface({ input: process.stdin })) if (line) runs.push(connectAndCheck(JSON.parse(line)));
await Promise.all(runs);
process.exit(0); // the SDKs have timers that would delay the exit for some seconds
