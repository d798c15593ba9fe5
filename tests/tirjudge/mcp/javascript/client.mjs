// Usage: node client.mjs http URL | stdio COMMAND [ARGUMENT...]
// Sends the calls of standard input, JSON lines with a tool's name and arguments, through the official SDK, and prints
// the names of the tools and each result, or the error that the SDK throws, as a line of JSON.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, target, ...more] = process.argv.slice(2);
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args: more, env: process.env });
const client = new Client({ name: "test", version: "0" });
await client.connect(transport);
const { tools } = await client.listTools();
console.log(JSON.stringify(tools.map((tool) => tool.name).sort()));
for await (const line of createInterface({ input: process.stdin })) {
  const result = await client.callTool(JSON.parse(line)).catch((error) => ({ error: error.message }));
  console.log(JSON.stringify(result));
}
await client.close();
