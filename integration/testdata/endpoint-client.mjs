// The npm SDK's client, v1, at odd addresses of a gateway: endpoint-client.mjs sse|oauth URL. With sse it calls a tool
// and prints its text; with oauth, as a client that would sign in by OAuth, it prints the error that its user sees.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, address] = process.argv.slice(2);
setTimeout(() => { console.error("it takes too long"); process.exit(3); }, 60_000).unref();

const redirectUrl = "http://localhost:1/callback";
const authProvider = {
  redirectUrl,
  clientMetadata: { client_name: "npm", redirect_uris: [redirectUrl] },
  clientInformation: () => undefined,
  saveClientInformation() {},
  tokens: () => undefined,
  saveTokens() {},
  redirectToAuthorization() { throw new Error("it opens a browser"); },
  saveCodeVerifier() {},
  codeVerifier: () => "x",
};
const client = new Client({ name: "npm", version: "1" });
if (kind === "sse") {
  await client.connect(new SSEClientTransport(new URL(address)));
  const result = await client.callTool({ name: "add", arguments: { a: 1, b: 2 } });
  console.log(result.content[0].text);
  await client.close();
} else {
  try {
    await client.connect(new StreamableHTTPClientTransport(new URL(address), { authProvider }));
    console.log("connected");
  } catch (e) {
    console.log(e.message);
  }
}
process.exit(0);
