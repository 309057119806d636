import crypto from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { hourMs } from "../../base/durations.ts";
import type { Json } from "../../base/json.ts";
import { createFileAccess } from "../../files/access.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { events, serve, sse } from "../../sessions/contract/turns-harness.ts";
import { openStore } from "../../store/open.ts";
import { startTestServer } from "../contract/test-server.ts";

const publicUrl = "https://chat.example.com/flotilla";
const bytes = Buffer.from("a picture, as it were");
const hash = crypto.hash("sha256", bytes, "hex");
const answers = {
  flotilla: [
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "I see." },
    { type: "text-end", id: "t" },
    { type: "finish" },
  ],
  "ag-ui": [
    { type: "RUN_STARTED", threadId: "t", runId: "r" },
    { type: "TEXT_MESSAGE_CHUNK", messageId: "t", delta: "I see." },
    { type: "RUN_FINISHED", threadId: "t", runId: "r" },
  ],
} as const;
const protocols = Object.keys(answers) as (keyof typeof answers)[];

/** A server with an agent behind a URL for each protocol, which hear what they are asked. */
async function startWith(files: { publicUrl?: string }) {
  const stack = new AsyncDisposableStack();
  const asked: Record<string, { readonly requests: readonly { body: string }[] }> = {};
  const use = [];
  for (const protocol of protocols) {
    const answering = await serve((response) => {
      response.writeHead(200, sse).end(events(...answers[protocol]));
    });
    stack.use(answering);
    asked[protocol] = answering;
    const isAgUi = protocol === "ag-ui" && { protocol };
    use.push(agent(protocol, { url: answering.url, allowPrivate: true, ...isAgUi }));
  }
  const server = stack.use(await startTestServer({ use, files }));
  /** Says a message with the file, and gives the address of it that the agent was asked with. */
  const askedUrl = async (protocol: keyof typeof answers) => {
    const { sessionId } = await server.sessions.create("default", {
      agents: [protocol],
      users: ["ada"],
    });
    const chat = server.pod.sessions.open(sessionId, { user: "ada" });
    const part = await chat.upload(bytes, { mediaType: "image/png", filename: "a.png" });
    await chat.ask([{ type: "text", text: "what is it?" }, part]);
    const { body } = asked[protocol]!.requests.at(-1)!;
    return { sessionId, ...fileIn(JSON.parse(body) as Asked) };
  };
  return {
    server,
    askedUrl,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

type Asked = {
  readonly messages: readonly {
    readonly parts?: readonly FilePart[];
    readonly content?: readonly { readonly source?: { value: string; mimeType: string } }[];
  }[];
};
type FilePart = { readonly type: string; readonly url: string; readonly mediaType: string };

/** The only file of the conversation that an agent was given, in the words of its protocol. */
function fileIn({ messages }: Asked): { url: string; mediaType: string } {
  const found = messages.flatMap(({ parts = [], content = [] }) => [
    ...parts.filter(({ type }) => type === "file"),
    ...content.flatMap(({ source }) =>
      source ? [{ url: source.value, mediaType: source.mimeType }] : [],
    ),
  ]);
  expect(found).toHaveLength(1);
  const { url, mediaType } = found[0]!;
  return { url, mediaType };
}

describe.each(protocols)("the address of a file for an agent that speaks %s", (protocol) => {
  let started: Awaited<ReturnType<typeof startWith>>;
  beforeAll(async () => {
    started = await startWith({ publicUrl: `${publicUrl}/` });
  });
  afterAll(() => started[Symbol.asyncDispose]());
  /** As a proxy at the public address passes it on. */
  const reach = (url: string) => fetch(url.replace(publicUrl, started.server.url));
  const partsOf = (url: string) => {
    const [, access, name] =
      /^https:\/\/chat\.example\.com\/flotilla\/v1\/files\/([^/]+)\/(.+)$/.exec(url)!;
    return { access: access!, name: name! };
  };

  test("serves its bytes to readers without credentials", async () => {
    const { url, mediaType } = await started.askedUrl(protocol);
    expect(url.startsWith(`${publicUrl}/v1/files/`)).toBe(true);
    expect([partsOf(url).name, mediaType]).toEqual([hash, "image/png"]);
    const answer = await reach(url);
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "image/png"]);
    expect(Buffer.from(await answer.arrayBuffer())).toEqual(bytes);
  });

  test("is refused with another signature, session, time or file", async () => {
    const { url, sessionId } = await started.askedUrl(protocol);
    const other = await started.askedUrl(protocol);
    const { access } = partsOf(url);
    const [claims = "", signature = ""] = access.split(".");
    const signed = JSON.parse(Buffer.from(claims, "base64url").toString()) as Json[];
    const [tenant, , expiresAtMs] = signed;
    expect(signed).toEqual(["default", sessionId, expect.any(Number)]);
    const claiming = (...values: Json[]) =>
      Buffer.from(JSON.stringify(values)).toString("base64url");
    const flipped = `${signature.startsWith("A") ? "B" : "A"}${signature.slice(1)}`;
    for (const forged of [
      `${claims}.${flipped}`,
      `${claims}.${partsOf(other.url).access.split(".")[1]}`,
      `${claiming(tenant!, other.sessionId, expiresAtMs!)}.${signature}`,
      `${claiming(tenant!, sessionId, Number(expiresAtMs) + hourMs)}.${signature}`,
      `${claiming("acme", sessionId, expiresAtMs!)}.${signature}`,
    ]) {
      const answer = await reach(url.replace(access, forged));
      expect([forged, answer.status]).toEqual([forged, 404]);
    }
    const another = url.replace(hash, crypto.hash("sha256", "another", "hex"));
    expect((await reach(another)).status).toBe(404);
    expect((await reach(url)).status).toBe(200);
  });

  test("expires after an hour and a half at most", async () => {
    const { url, sessionId } = await started.askedUrl(protocol);
    const { access } = partsOf(url);
    const database = await openStore(`sqlite:${started.server.path}`);
    const now = createFileAccess({ database, clock: movableClock(Date.now()) });
    const { expiresAtMs } = (await now.check(access))!;
    const later = createFileAccess({ database, clock: movableClock(expiresAtMs) });
    expect(await later.check(access)).toBeUndefined();
    // An agent that was asked earlier reads it from this server for an hour, and then no more.
    const statusOfOneGranted = async (agoMs: number) => {
      const clock = movableClock(Date.now() - agoMs);
      const granted = await createFileAccess({ database, clock }).grant("default", sessionId);
      return (await reach(url.replace(access, granted.access))).status;
    };
    expect(await statusOfOneGranted(hourMs - 60_000)).toBe(200);
    expect(await statusOfOneGranted(1.5 * hourMs + 1)).toBe(404);
    await database.close();
  });
});

test.each(protocols)(
  "without a public address agents that speak %s get a reference",
  async (protocol) => {
    await using started = await startWith({});
    const { url } = await started.askedUrl(protocol);
    expect(url).toBe(`flotilla-file:${hash}`);
  },
);
