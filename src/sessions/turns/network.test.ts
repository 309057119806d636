import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAgentNetwork, type Lookup } from "./network.ts";

let server: Server;
let port: number;
let served = 0;
beforeAll(async () => {
  server = createServer((_, response) => {
    served++;
    response.end("here");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  ({ port } = server.address() as AddressInfo);
});
afterAll(() => server.close());

/** Names that mean what the test says, one list for each time that they are looked up. */
function names(...answers: string[][]): { lookup: Lookup; looked: () => number } {
  let count = 0;
  return {
    lookup: (_host, _options, looked) => {
      const addresses = answers[Math.min(count++, answers.length - 1)]!;
      looked(
        null,
        addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
      );
    },
    looked: () => count,
  };
}

async function post(lookup: Lookup, url: string, allowPrivate: boolean): Promise<string> {
  const network = createAgentNetwork({ lookup });
  try {
    const signal = new AbortController().signal;
    const answer = await network.post({ url, headers: {}, body: "{}", allowPrivate, signal });
    let text = "";
    for await (const bytes of answer.body) text += Buffer.from(bytes).toString();
    return text;
  } finally {
    await network.close();
  }
}

describe("the network of agents", () => {
  test.each([
    ["this machine", ["127.0.0.1"]],
    ["a private network", ["10.0.0.8"]],
    ["a metadata service", ["169.254.169.254"]],
    ["this machine by IPv6", ["::1"]],
    ["this machine, mapped", ["::ffff:127.0.0.1"]],
    ["a public and a private one", ["93.184.216.34", "127.0.0.1"]],
    ["nothing", []],
  ])("doesn't connect to a name that means %s", async (_, addresses) => {
    const before = served;
    const { lookup } = names(addresses);
    await expect(post(lookup, `https://rebind.example:${port}/`, false)).rejects.toMatchObject({
      code: "agent_forbidden",
      retryable: false,
      // All members of the session see the message; the log has the cause.
      message: expect.not.stringContaining("rebind"),
      cause: { message: expect.stringContaining("rebind.example") },
    });
    expect(served).toBe(before);
  });

  test("connects to the address that was checked, and resolves nothing a second time", async () => {
    const { lookup, looked } = names(["127.0.0.1"], ["169.254.169.254"]);
    expect(await post(lookup, `http://agents.example:${port}/`, true)).toBe("here");
    expect(looked()).toBe(1);
  });

  test("never connects to a metadata service, whatever is allowed", async () => {
    const { lookup } = names(["169.254.169.254"]);
    await expect(post(lookup, "http://agents.example/", true)).rejects.toMatchObject({
      code: "agent_forbidden",
    });
  });

  test.each(["http://127.0.0.1", "https://0x7f.1", "https://2130706433", "https://a@b.example"])(
    "doesn't connect to %s",
    async (url) => {
      const { lookup, looked } = names(["93.184.216.34"]);
      await expect(post(lookup, url, false)).rejects.toMatchObject({
        code: "agent_forbidden",
        message: expect.not.stringContaining(new URL(url).hostname),
      });
      expect(looked()).toBe(0);
    },
  );
});
