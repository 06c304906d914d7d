// The client of the npm SDK v1 prints the names of all entries of the four lists of a gateway: list-client.mjs URL.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

setTimeout(() => { console.error("timeout"); process.exit(3); }, 60_000).unref();
const client = new Client({ name: "npm", version: "1" }, {});
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
for (const [method, member, key] of [["listTools", "tools", "name"], ["listPrompts", "prompts", "name"],
  ["listResources", "resources", "uri"], ["listResourceTemplates", "resourceTemplates", "uriTemplate"]]) {
  for (const entry of (await client[method]())[member]) console.log(member + " " + entry[key]);
}
await client.close();
