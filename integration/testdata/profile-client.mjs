// The npm SDK's clients use a gateway with a token: profile-client.mjs v1|v2 REVISION URL TOOL... The token is in
// the variable TOKEN. It prints the names of the tools, and the text of the result or error of a call of each TOOL, as {"tools", "calls"}.
const [version, revision, url, ...names] = process.argv.slice(2);

setTimeout(() => { console.error("timeout"); process.exit(3); }, 60_000).unref();
const options = { requestInit: { headers: { Authorization: "Bearer " + process.env.TOKEN } } };
let client, transport;
if (version === "v1") {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  client = new Client({ name: "npm-v1", version: "1" }, {});
  transport = new StreamableHTTPClientTransport(new URL(url), options);
} else {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  client = new Client({ name: "npm-v2", version: "1" },
    { versionNegotiation: { mode: revision === "2026-07-28" ? { pin: revision } : "legacy" } });
  transport = new StreamableHTTPClientTransport(new URL(url), options);
}
await client.connect(transport);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const calls = {};
for (const name of names) {
  try {
    calls[name] = (await client.callTool({ name, arguments: {} })).content[0].text;
  } catch (e) {
    calls[name] = "error: " + e.message;
  }
}
console.log(JSON.stringify({ tools, calls }));
await client.close();
