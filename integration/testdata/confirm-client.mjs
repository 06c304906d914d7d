// The npm SDK's clients answer a question of the gateway: confirm-client.mjs v1|v2 REVISION URL TOOL true|false. It calls
// the tool with {"n": 1}, answers elicitations with {"confirm": ANSWER, "n": 7}, and prints {"asked", "result"}.
const [version, revision, url, name, answer] = process.argv.slice(2);

setTimeout(() => { console.error("timeout"); process.exit(3); }, 60_000).unref();
const capabilities = { elicitation: { form: {} } };
const asked = [];
const elicited = async ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: params.requestedSchema.properties.confirm ? { confirm: answer === "true" } : { n: 7 } };
};

let client, transport;
if (version === "v1") {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  client = new Client({ name: "npm-v1", version: "1" }, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, elicited);
  transport = new StreamableHTTPClientTransport(new URL(url));
} else {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  client = new Client({ name: "npm-v2", version: "1" }, {
    capabilities, versionNegotiation: { mode: revision === "2026-07-28" ? { pin: revision } : "legacy" },
  });
  client.setRequestHandler("elicitation/create", elicited);
  transport = new StreamableHTTPClientTransport(new URL(url));
}
await client.connect(transport);
const result = await client.callTool({ name, arguments: { n: 1 } });
console.log(JSON.stringify({ asked, result }));
await client.close();
