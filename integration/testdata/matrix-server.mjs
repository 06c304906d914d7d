// The npm SDK's servers for the matrix: matrix-server.mjs v1|v2 http|stdio REVISION [PORT]. matrix_servers_test.go
// describes their tools; each server speaks only the generation of REVISION.
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";

const [version, kind, revision, port] = process.argv.slice(2);
const modern = revision === "2026-07-28";
const news = "matrix://news";
const note = (line) => appendFileSync(process.env.INTEGRATION_NOTES, line + "\n");
const schema = { type: "object", properties: { n: { type: "string" } } };
const elicitation = { message: "who?", requestedSchema: { type: "object", properties: { name: { type: "string" } } } };
const prompt = { maxTokens: 10, messages: [{ role: "user", content: { type: "text", text: "a word" } }] };

const tools = ["progress", "release", "hang", "ask", "sample", "touch", "grow"];
// After each step, a call of progress waits for one more call of release.
const waiting = new Map();
const gate = (n) => {
  if (!waiting.has(n)) waiting.set(n, { released: 0, wake: () => {} });
  return waiting.get(n);
};
const passed = (n, step) => new Promise((resolve) => {
  const g = gate(n);
  g.wake = () => { if (g.released >= step) resolve(); };
  g.wake();
});
const text = (s) => ({ content: [{ type: "text", text: s }] });

// perform runs a call of a tool, with functions for everything that differs between the SDKs: notifications of progress
// and changes, and requests. ask and sample return either a result with the input request or the client's response.
async function perform(name, n, { signal, progress, ask, sample, changed, updated }) {
  switch (name) {
    case "progress":
      for (let step = 1; step <= 3; step++) {
        await progress(step);
        await passed(n, step);
      }
      return text("done " + n);
    case "release":
      gate(n).released++;
      gate(n).wake();
      return text("ok");
    case "hang":
      await new Promise((resolve) => {
        signal.addEventListener("abort", resolve);
        progress(1);
      });
      note("cancelled " + n);
      throw new Error("cancelled");
    case "ask": {
      const { request, response } = await ask();
      return request ?? text(response.action + " " + response.content.name);
    }
    case "sample": {
      const { request, response } = await sample();
      return request ?? text((Array.isArray(response.content) ? response.content[0] : response.content).text);
    }
    case "touch":
      await updated();
      return text("ok");
    case "grow":
      tools.push("grown-" + n);
      await changed();
      return text("ok");
    default:
      return text("grown");
  }
}

const info = { name: "matrix-npm-" + version, version: "1" };
const capabilities = { tools: { listChanged: true }, resources: { subscribe: true } };
const listed = () => ({ tools: tools.map((name) => ({ name, inputSchema: schema })) });
const resources = () => ({ resources: [{ uri: news, name: "news" }] });
const open = new Set(); // servers that send notifications of changes, unless the handler does

async function makeV1() {
  const { Server } = await import("@modelcontextprotocol/sdk/server/index.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  return () => {
    const server = new Server(info, { capabilities });
    server.setRequestHandler(types.ListToolsRequestSchema, listed);
    server.setRequestHandler(types.ListResourcesRequestSchema, resources);
    server.setRequestHandler(types.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: [] }));
    server.setRequestHandler(types.SubscribeRequestSchema, () => ({}));
    server.setRequestHandler(types.UnsubscribeRequestSchema, () => ({}));
    server.setRequestHandler(types.CallToolRequestSchema, ({ params }, extra) => perform(params.name, params.arguments?.n, {
      signal: extra.signal,
      progress: (step) => extra.sendNotification({
        method: "notifications/progress", params: { progressToken: params._meta.progressToken, progress: step, total: 3 },
      }),
      ask: async () => ({ response: await extra.sendRequest({ method: "elicitation/create", params: elicitation }, types.ElicitResultSchema) }),
      sample: async () => ({ response: await extra.sendRequest({ method: "sampling/createMessage", params: prompt }, types.CreateMessageResultSchema) }),
      changed: () => notifyAll((s) => s.sendToolListChanged()),
      updated: () => notifyAll((s) => s.sendResourceUpdated({ uri: news })),
    }));
    return server;
  };
}

const notifyAll = (f) => Promise.allSettled([...open].map(f));
let notify; // from the handler of 2026-07-28 over HTTP

async function makeV2() {
  const { Server, inputRequired } = await import("@modelcontextprotocol/server");
  return () => {
    const server = new Server(info, { capabilities });
    server.setRequestHandler("tools/list", listed);
    server.setRequestHandler("resources/list", resources);
    server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: [] }));
    if (!modern) {
      server.setRequestHandler("resources/subscribe", () => ({}));
      server.setRequestHandler("resources/unsubscribe", () => ({}));
    }
    server.setRequestHandler("tools/call", ({ params }, ctx) => {
      const inputRequest = (key, input) => () => {
        const response = ctx.mcpReq.inputResponses?.[key];
        return response ? { response } : { request: inputRequired({ inputRequests: { [key]: input } }) };
      };
      return perform(params.name, params.arguments?.n, {
        signal: ctx.mcpReq.signal,
        progress: (step) => ctx.mcpReq.notify({
          method: "notifications/progress", params: { progressToken: ctx.mcpReq._meta?.progressToken, progress: step, total: 3 },
        }),
        ask: inputRequest("who", inputRequired.elicit(elicitation)),
        sample: inputRequest("word", inputRequired.createMessage(prompt)),
        changed: () => notify ? notify.toolsChanged() : notifyAll((s) => s.sendToolListChanged()),
        updated: () => notify ? notify.resourceUpdated(news) : notifyAll((s) => s.sendResourceUpdated({ uri: news })),
      });
    });
    return server;
  };
}

const make = await (version === "v1" ? makeV1 : makeV2)();

if (kind === "stdio") {
  if (modern) {
    const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
    serveStdio(() => { const server = make(); open.add(server); return server; }, { legacy: "reject" });
  } else {
    const from = version === "v1" ? "@modelcontextprotocol/sdk/server/stdio.js" : "@modelcontextprotocol/server/stdio";
    const { StdioServerTransport } = await import(from);
    const server = make();
    open.add(server);
    await server.connect(new StdioServerTransport());
    process.stdin.on("end", () => process.exit(0));
  }
} else if (modern) {
  const { createMcpHandler } = await import("@modelcontextprotocol/server");
  const { toNodeHandler } = await import("@modelcontextprotocol/node");
  const handler = createMcpHandler(make, { legacy: "reject" });
  notify = handler.notify;
  createServer(toNodeHandler(handler)).listen(Number(port), "127.0.0.1");
} else {
  const Transport = version === "v1"
    ? (await import("@modelcontextprotocol/sdk/server/streamableHttp.js")).StreamableHTTPServerTransport
    : (await import("@modelcontextprotocol/node")).NodeStreamableHTTPServerTransport;
  const sessions = new Map();
  createServer(async (req, res) => {
    let transport = sessions.get(req.headers["mcp-session-id"]);
    if (!transport) {
      if (req.headers["mcp-session-id"]) return res.writeHead(404).end();
      const server = make();
      transport = new Transport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => { sessions.set(id, transport); open.add(server); },
      });
      transport.onclose = () => { sessions.delete(transport.sessionId); open.delete(server); };
      await server.connect(transport);
    }
    await transport.handleRequest(req, res);
  }).listen(Number(port), "127.0.0.1");
}
