// The client of the npm SDK v1 in front of a gateway: npm-client.mjs http|sse URL. It prints each step, and at the end
// "all passed".
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

const [kind, address] = process.argv.slice(2);
setTimeout(() => { console.error("timeout"); process.exit(3); }, 60_000).unref();

// disconnect aborts the stream that was opened with GET.
let disconnect = () => {};
let gets = 0;
const trackedFetch = (url, init) => {
  if (init?.method !== "GET") return fetch(url, init);
  const controller = new AbortController();
  disconnect = () => controller.abort();
  gets++;
  return fetch(url, { ...init, signal: AbortSignal.any([controller.signal, ...(init.signal ? [init.signal] : [])]) });
};

const transport = kind === "sse"
  ? new SSEClientTransport(new URL(address))
  : new StreamableHTTPClientTransport(new URL(address), {
      fetch: trackedFetch,
      reconnectionOptions: { initialReconnectionDelay: 50, maxReconnectionDelay: 200, reconnectionDelayGrowFactor: 1.5, maxRetries: 5 },
    });
const client = new Client({ name: "npm", version: "1" }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
const requests = [];
client.setRequestHandler(types.ElicitRequestSchema, async (r) => {
  requests.push("elicit " + r.params.message);
  return { action: "accept", content: { name: "Ada" } };
});
client.setRequestHandler(types.CreateMessageRequestSchema, async () => {
  requests.push("sample");
  return { role: "assistant", model: "m", content: { type: "text", text: "engine" } };
});
client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///npm", name: "npm" }] }));
let updated = [];
let wake = () => {};
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (n) => { updated.push(n.params.uri); wake(); });
const logs = [];
client.setNotificationHandler(types.LoggingMessageNotificationSchema, (n) => { logs.push(n.params.logger + " " + n.params.level); });

await client.connect(transport);
const text = (result) => result.content[0].text;
const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, undefined, options);

const tools = (await client.listTools()).tools.map((t) => t.name);
for (const name of ["ask", "hold", "touch", "get-sum", "web__echo"]) assert.ok(tools.includes(name), `${name} in ${tools}`);
assert.ok((await client.listPrompts()).prompts.some((p) => p.name === "completable-prompt"));
assert.ok((await client.listResources()).resources.some((r) => r.uri === "features://news"));
assert.ok((await client.listResourceTemplates()).resourceTemplates.length > 0);
console.log("listed");

assert.equal(text(await call("get-sum", { a: 19, b: 23 })), "The sum of 19 and 23 is 42.");
assert.equal((await client.readResource({ uri: "features://news" })).contents[0].text, "no news");
assert.equal((await client.getPrompt({ name: "greet", arguments: { name: "Ada" } })).messages[0].content.text, "hello Ada");
const completed = await client.complete({ ref: { type: "ref/prompt", name: "greet" }, argument: { name: "name", value: "A" } });
assert.deepEqual(completed.completion.values, ["Ada"]);
const steps = [];
await call("trigger-long-running-operation", { duration: 0.2, steps: 2 }, { onprogress: (p) => steps.push(`${p.progress}/${p.total}`) });
assert.equal(steps[0], "1/2"); // this SDK loses the last one if the response follows closely, with any server
console.log("called");

assert.equal(text(await call("ask")), "accept Ada engine");
assert.deepEqual(requests, ["elicit [local] who?", "sample"]);
console.log("requests handled");

await client.setLoggingLevel("error");
await call("log");
assert.deepEqual(logs.filter((l) => l.startsWith("local/")), ["local/l error"]);

const update = async () => {
  const received = new Promise((resolve) => { wake = resolve; });
  await call("touch");
  await received;
};
await client.subscribeResource({ uri: "features://news" });
await update();
assert.deepEqual(updated, ["features://news"]);
console.log("updated");

const abort = new AbortController();
const held = call("hold", {}, { signal: abort.signal, onprogress: () => abort.abort("enough") });
await assert.rejects(held, /enough/);
assert.equal(text(await call("ask")), "accept Ada engine");
console.log("cancelled");

if (kind === "http") {
  const before = gets;
  disconnect();
  await update(); // waits for the stream, which the client opens again
  assert.ok(gets > before, "no GET after the disconnect");
  assert.equal(updated.length, 2);
  console.log("reconnected");
  await transport.terminateSession();
}
await client.close();
console.log("all passed");
process.exit(0); // the SDK has timers that would delay the exit for some seconds
