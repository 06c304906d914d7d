// The client of the npm SDK v1: endpoint-client.mjs sse|oauth URL. With sse it calls a tool over HTTP+SSE and prints the
// text of the result. With oauth it is a client that would sign in with OAuth, and prints the error that its user sees.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, address] = process.argv.slice(2);
setTimeout(() => { console.error("timeout"); process.exit(3); }, 60_000).unref();

const redirectUrl = "http://localhost:1/callback";
const authProvider = {
  redirectUrl,
  clientMetadata: { client_name: "npm", redirect_uris: [redirectUrl] },
  clientInformation: () => undefined,
  saveClientInformation() {},
  tokens: () => undefined,
  saveTokens() {},
  redirectToAuthorization() { throw new Error("unexpected redirect to a browser"); },
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
