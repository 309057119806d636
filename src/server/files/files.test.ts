import crypto from "node:crypto";
import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SignJWT } from "jose";
import { hourMs } from "../../base/durations.ts";
import { agent } from "../../sessions/agents/agent.ts";
import type { Part } from "../../protocol/message.ts";
import { startTestServer, type TestServer } from "../contract/test-server.ts";

const secret = "a secret that is long enough for tests";
const png = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);
const hashOf = (bytes: Uint8Array | string) => crypto.hash("sha256", bytes, "hex");
const othersKey = "a-key-of-another-tenant";
let read: Buffer[] = [];
let inlined: Part[] = [];
const looker = agent("looker", async ({ messages, files }) => {
  const parts = messages.at(-1)!.parts.filter(({ type }) => type === "file");
  read = await Promise.all(parts.map(async (part) => Buffer.from(await files.read(part))));
  inlined = [...(await files.inline(messages)).at(-1)!.parts];
  return `I see ${parts.length}`;
});

let server: TestServer;
beforeAll(async () => {
  const apiKeys = [{ key: othersKey, name: "others", tenant: "acme" }];
  server = await startTestServer({ use: [looker], server: { tokens: { secret }, apiKeys } });
});
afterAll(() => server[Symbol.asyncDispose]());

const as = async (user: string) => {
  const token = new SignJWT({ sub: user, tenant: "default" }).setProtectedHeader({ alg: "HS256" });
  const signed = await token.setExpirationTime("1h").sign(new TextEncoder().encode(secret));
  return { authorization: `Bearer ${signed}` };
};
const call = async (
  path: string,
  { user = "ada", ...init }: RequestInit & { user?: string } = {},
) =>
  fetch(server.url + path, {
    ...init,
    headers: { ...(await as(user)), ...(init.headers as Record<string, string>) },
  });
let sessions = 0;
const created = async (users: readonly string[] = ["ada"]) => {
  const sessionId = `files-${++sessions}`;
  await server.sessions.create("default", { sessionId, agents: ["looker"], users: [...users] });
  return sessionId;
};
const upload = (
  sessionId: string,
  body: Uint8Array | string,
  { type = "image/png", query = "", user = "ada" } = {},
) =>
  call(`/v1/sessions/${sessionId}/files${query}`, {
    method: "POST",
    body: body as never,
    headers: { "content-type": type },
    user,
  });
const codeOf = async (answer: Response) =>
  ((await answer.json()) as { error: { code: string } }).error.code;

const send = (sessionId: string, parts: readonly unknown[], id?: string) =>
  call(`/v1/sessions/${sessionId}/messages`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ parts, ...(id && { id }) }),
  });
const dataUrl = (bytes: Uint8Array, type = "image/png") =>
  `data:${type};base64,${Buffer.from(bytes).toString("base64")}`;

describe("files of a session", () => {
  test("are uploaded by members, and read by members of that session alone", async () => {
    const [own, other] = [await created(), await created(["ada", "bob"])];
    const uploaded = await upload(own, png, { query: "?filename=F%C3%A4hre%20%221%22.png" });
    expect(uploaded.status).toBe(201);
    expect(await uploaded.json()).toEqual({
      type: "file",
      url: `flotilla-file:${hashOf(png)}`,
      mediaType: "image/png",
      filename: 'Fähre "1".png',
      size: png.length,
    });
    const path = (sessionId: string, hash = hashOf(png)) =>
      `/v1/sessions/${sessionId}/files/${hash}`;
    const answer = await call(path(own));
    expect([answer.status, Buffer.from(await answer.arrayBuffer())]).toEqual([200, png]);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "image/png",
      "content-length": String(png.length),
      "content-disposition": `inline; filename="F_hre _1_.png"; filename*=UTF-8''F%C3%A4hre%20%221%22.png`,
      "x-content-type-options": "nosniff",
      "cache-control": "private, no-cache",
      etag: `"${hashOf(png)}"`,
    });
    expect(answer.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(answer.headers.get("content-security-policy")).toContain("sandbox");

    // Not of another session, not of a guessed hash, and not by who is no member: the same answer.
    const refusals = await Promise.all([
      call(path(other)),
      call(path(own, hashOf("guessed"))),
      call(path(own, "..%2f..%2fetc")),
      call(path(own), { user: "eve" }),
      upload(own, png, { user: "eve" }),
    ]);
    expect(refusals.map(({ status }) => status)).toEqual([404, 404, 404, 404, 404]);
  });

  test("are nothing to a program of another tenant that may use all of its sessions", async () => {
    const own = await created();
    await upload(own, png);
    const headers = { authorization: `Bearer ${othersKey}` };
    const at = `${server.url}/v1/sessions/${own}`;
    const answers = await Promise.all([
      fetch(`${at}/files/${hashOf(png)}`, { headers }),
      fetch(`${at}/file-access`, { method: "POST", headers }),
      fetch(`${at}/files`, { method: "POST", headers, body: "x" }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404]);
  });

  test("are those of its forks, also once it is deleted, and of a message that is said anew there", async () => {
    const own = await created();
    await send(own, [{ type: "file", mediaType: "image/png", url: dataUrl(png) }]);
    const { messageId } = await server.sessions.send("default", own, {
      author: "ada",
      parts: [{ type: "text", text: "and this?" }],
    });
    const input = { atSeq: 1, users: ["ada"] };
    const { sessionId: fork } = await server.sessions.fork("default", own, input);
    const other = Buffer.from("another picture");
    const { session } = await server.sessions.edit("default", own, {
      messageId,
      author: "ada",
      users: ["ada"],
      parts: [{ type: "file", mediaType: "image/png", url: dataUrl(other) }],
    });
    await server.sessions.remove("default", own);
    const statusOf = async (sessionId: string, bytes: Uint8Array) =>
      (await call(`/v1/sessions/${sessionId}/files/${hashOf(bytes)}`)).status;
    expect(await statusOf(own, png)).toBe(404);
    expect(await statusOf(fork, png)).toBe(200);
    expect(await statusOf(session.sessionId, png)).toBe(200);
    expect(await statusOf(session.sessionId, other)).toBe(200);
    const { entries } = await server.sessions.entries("default", session.sessionId, {});
    expect(JSON.stringify(entries)).not.toContain("data:");
    await server.sessions.remove("default", fork);
    expect(await statusOf(fork, png)).toBe(404);
  });

  test("are sent in ranges", async () => {
    const sessionId = await created();
    const bytes = crypto.randomBytes(600_000);
    await upload(sessionId, bytes, { type: "video/mp4" });
    const path = `/v1/sessions/${sessionId}/files/${hashOf(bytes)}`;
    const ranged = (range: string, more: Record<string, string> = {}) =>
      call(path, { headers: { range, ...more } });
    for (const [range, from, to] of [
      ["bytes=0-0", 0, 0],
      ["bytes=262143-262145", 262_143, 262_145],
      ["bytes=599990-", 599_990, 599_999],
      ["bytes=-5", 599_995, 599_999],
      ["bytes=10-9999999", 10, 599_999],
    ] as const) {
      const answer = await ranged(range);
      expect([range, answer.status]).toEqual([range, 206]);
      expect(answer.headers.get("content-range")).toBe(`bytes ${from}-${to}/600000`);
      expect(Buffer.from(await answer.arrayBuffer())).toEqual(bytes.subarray(from, to + 1));
    }
    const past = await ranged("bytes=600000-");
    expect([past.status, past.headers.get("content-range")]).toEqual([416, "bytes */600000"]);
    expect((await ranged("bytes=-0")).status).toBe(416);
    for (const ignored of ["bytes=5-2", "lines=1-2", "bytes=0-1,4-5", "bytes=-"]) {
      const answer = await ranged(ignored);
      expect([answer.status, (await answer.arrayBuffer()).byteLength]).toEqual([200, 600_000]);
    }
    const etag = `"${hashOf(bytes)}"`;
    expect((await ranged("bytes=0-9", { "if-range": etag })).status).toBe(206);
    expect((await ranged("bytes=0-9", { "if-range": '"another"' })).status).toBe(200);
    const unchanged = await call(path, { headers: { "if-none-match": etag } });
    expect([unchanged.status, await unchanged.text()]).toEqual([304, ""]);
    const head = await call(path, { method: "HEAD" });
    expect([head.status, head.headers.get("content-length")]).toEqual([200, "600000"]);
  });

  test.each([
    ["text/html", "<script>alert(1)</script>"],
    ["image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"],
    ["application/xhtml+xml", "<html xmlns='http://www.w3.org/1999/xhtml'/>"],
    ["text/xml", "<a/>"],
    ["application/javascript", "alert(1)"],
    ["multipart/x-mixed-replace", "--x"],
    ["no type at all", "text"],
  ])("of the type %s are downloads that run nothing", async (type, text) => {
    const sessionId = await created();
    await upload(sessionId, text, { type });
    const answer = await call(`/v1/sessions/${sessionId}/files/${hashOf(text)}`);
    expect(await answer.text()).toBe(text);
    expect(answer.headers.get("content-type")).toBe("application/octet-stream");
    expect(answer.headers.get("content-disposition")).toMatch(/^attachment/);
    expect(answer.headers.get("content-security-policy")).toMatch(/; sandbox$/);
  });

  test("whose type lies are shown as the type that was said, and never looked at", async () => {
    const sessionId = await created();
    const html = "<html><script>alert(1)</script>";
    await upload(sessionId, html, { type: "image/png" });
    const answer = await call(`/v1/sessions/${sessionId}/files/${hashOf(html)}`);
    expect(answer.headers.get("content-type")).toBe("image/png");
    expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
  });

  test("are refused where the bytes aren't what was said", async () => {
    const sessionId = await created();
    const refused = async (body: Uint8Array | string, query: string) => {
      const answer = await upload(sessionId, body, { query });
      return [answer.status, await codeOf(answer)];
    };
    expect(await refused(png, "?size=3")).toEqual([400, "invalid_input"]);
    expect(await refused(png, `?sha256=${hashOf("other")}`)).toEqual([400, "invalid_input"]);
    expect(await refused("", "")).toEqual([400, "invalid_input"]);
    expect(await refused(png, `?size=${26 * 1024 * 1024}`)).toEqual([413, "payload_too_large"]);
    expect(await refused(png, "?colour=red")).toEqual([400, "invalid_option"]);
  });

  test("four of one caller are uploaded at once, and the next is told to wait", async () => {
    const sessionId = await created();
    const headers = await as("ada");
    const begun = Array.from({ length: 5 }, () =>
      slowUpload(`${server.url}/v1/sessions/${sessionId}/files`, headers),
    );
    // The others can't be answered before they have ended.
    expect(await Promise.race(begun.map(({ answered }) => answered))).toEqual([503, true]);
    for (const each of begun) each.end();
    const all = await Promise.all(begun.map(({ answered }) => answered));
    expect(all.map(([status]) => status).toSorted((one, other) => one - other)).toEqual([
      201, 201, 201, 201, 503,
    ]);
    expect((await upload(sessionId, png)).status).toBe(201);
  });

  test("are read without credentials by an address that can't be made up", async () => {
    const sessionId = await created();
    await upload(sessionId, png);
    const opened = await call(`/v1/sessions/${sessionId}/file-access`, { method: "POST" });
    const { path, expiresAtMs } = (await opened.json()) as { path: string; expiresAtMs: number };
    expect(expiresAtMs - Date.now()).toBeGreaterThan(hourMs - 60_000);
    const url = `${server.url}${path}${hashOf(png)}`;
    const answer = await fetch(url);
    expect([answer.status, Buffer.from(await answer.arrayBuffer())]).toEqual([200, png]);
    expect(answer.headers.get("cache-control")).toMatch(/^private, max-age=\d+, immutable$/);
    const [claims, signature] = path.split("/").at(-2)!.split(".");
    const forged = Buffer.from(JSON.stringify(["default", "files-1", expiresAtMs * 2]));
    for (const access of [
      `${forged.toString("base64url")}.${signature}`,
      `${claims}.`,
      `${claims}`,
      `${claims}.AAAA`,
      "x".repeat(10_000),
      ".",
    ]) {
      expect((await fetch(`${server.url}/v1/files/${access}/${hashOf(png)}`)).status).toBe(404);
    }
    expect((await fetch(`${server.url}${path}${hashOf("guessed")}`)).status).toBe(404);
    expect(
      (await call(`/v1/sessions/${sessionId}/file-access`, { method: "POST", user: "eve" })).status,
    ).toBe(404);
  });
});

describe("a message with files", () => {
  test("has what code has uploaded, whole or as it comes, and its agent reads it", async () => {
    const chat = server.pod.sessions.open(await created(), { user: "ada" });
    const large = Buffer.alloc(600_000, "a large file ");
    const parts = [
      await chat.upload(png, { filename: "a.png", mediaType: "image/png" }),
      await chat.upload(new File(["some text"], "notes.txt", { type: "text/plain" })),
      await chat.upload(new Blob([large]).stream()),
    ];
    expect(parts).toMatchObject([
      { type: "file", mediaType: "image/png", filename: "a.png", size: png.length },
      {
        mediaType: "text/plain",
        filename: "notes.txt",
        url: `flotilla-file:${hashOf("some text")}`,
      },
      { mediaType: "application/octet-stream", size: large.length },
    ]);
    await chat.ask(parts);
    expect(read).toEqual([png, Buffer.from("some text"), large]);

    for (const refused of ["text", 7, null, {}, [1, 2]]) {
      await expect(chat.upload(refused as never)).rejects.toMatchObject({ code: "invalid_input" });
    }
    await expect(chat.upload(png, { name: "x" } as never)).rejects.toMatchObject({
      code: "invalid_option",
    });
    await expect(chat.upload(new Uint8Array())).rejects.toMatchObject({ code: "invalid_input" });
    const failing = (async function* () {
      yield png;
      throw new Error("the source has failed");
    })();
    await expect(chat.upload(failing)).rejects.toThrow("the source has failed");
    for (const elsewhere of [
      server.pod.sessions.open("nowhere"),
      server.pod.sessions.open(chat.sessionId, { tenant: "acme" }),
    ]) {
      await expect(elsewhere.upload(png)).rejects.toMatchObject({ code: "not_found" });
    }
  });

  test("has references in place of data URLs, also where it was longer than a message may be", async () => {
    const sessionId = await created();
    const large = crypto.randomBytes(900_000);
    const parts = [
      { type: "text", text: "look" },
      { type: "file", mediaType: "image/png", filename: "a.png", url: dataUrl(png) },
      { type: "file", mediaType: "image/jpeg", url: dataUrl(large, "image/jpeg") },
      { type: "file", mediaType: "image/png", filename: "again.png", url: dataUrl(png) },
      { type: "file", mediaType: "image/png", url: "https://example.com/a.png" },
    ];
    const sent = await send(sessionId, parts, "m1");
    expect(sent.status).toBe(201);
    expect((await send(sessionId, parts, "m1")).status).toBe(200);
    const { entries } = await server.sessions.entries("default", sessionId, {});
    expect(entries[0]!.parts).toEqual([
      parts[0],
      { ...parts[1], url: `flotilla-file:${hashOf(png)}`, size: png.length },
      { ...parts[2], url: `flotilla-file:${hashOf(large)}`, size: large.length },
      { ...parts[3], url: `flotilla-file:${hashOf(png)}`, size: png.length },
      parts[4],
    ]);
    const answer = await call(`/v1/sessions/${sessionId}/files/${hashOf(large)}`);
    expect(Buffer.from(await answer.arrayBuffer())).toEqual(large);
  });

  test("is read by an agent as bytes, and as data URLs for a model", async () => {
    const sessionId = await created();
    await upload(sessionId, png);
    const reference = { type: "file", mediaType: "image/png", url: `flotilla-file:${hashOf(png)}` };
    expect((await send(sessionId, [reference])).status).toBe(201);
    await expect
      .poll(async () => (await server.sessions.entries("default", sessionId, {})).entries.length)
      .toBe(2);
    expect(read).toEqual([png]);
    expect(inlined).toEqual([{ ...reference, url: dataUrl(png) }]);
  });

  test.each([
    ["of another session", { url: `flotilla-file:${hashOf("elsewhere")}` }, 404],
    ["of a reference that is none", { url: "flotilla-file:abc" }, 400],
    ["of a data URL that is cut off", { url: "data:image/png;base64" }, 400],
    ["of what isn't base64", { url: "data:image/png;base64,%%%" }, 400],
    ["that is empty", { url: "data:image/png;base64," }, 400],
    ["of more bytes than a message may carry", { url: `data:a/b,${"x".repeat(10_500_000)}` }, 413],
  ])("is refused with a file %s, and stores nothing", async (_, part, status) => {
    const [sessionId, other] = [await created(), await created()];
    await upload(other, "elsewhere");
    const answer = await send(sessionId, [{ type: "file", mediaType: "image/png", ...part }]);
    expect(answer.status).toBe(status);
    expect((await server.sessions.entries("default", sessionId, {})).entries).toEqual([]);
  });

  test("can't be longer than before but for its files", async () => {
    const sessionId = await created();
    const answer = await send(sessionId, [
      { type: "text", text: "x".repeat(300_000) },
      { type: "file", mediaType: "image/png", url: dataUrl(png) },
    ]);
    expect(answer.status).toBe(413);
    expect((await call(`/v1/sessions/${sessionId}/files/${hashOf(png)}`)).status).toBe(404);
  });

  test("waits where its caller has four under way that are as long, and others don't", async () => {
    const sessionId = await created();
    const headers = { ...(await as("ada")), "content-type": "application/json" };
    const path = `/v1/sessions/${sessionId}/messages`;
    const begun = Array.from({ length: 5 }, () => slowUpload(server.url + path, headers, 600_000));
    // The others can't be answered before they have ended.
    expect(await Promise.race(begun.map(({ answered }) => answered))).toEqual([503, true]);
    expect((await send(sessionId, [{ type: "text", text: "short" }])).status).toBe(201);
    for (const each of begun) each.end();
    const all = await Promise.all(begun.map(({ answered }) => answered));
    expect(all.map(([status]) => status).toSorted((one, other) => one - other)).toEqual([
      400, 400, 400, 400, 503,
    ]);
    const file = {
      type: "file",
      mediaType: "image/png",
      url: dataUrl(crypto.randomBytes(900_000)),
    };
    expect((await send(sessionId, [file])).status).toBe(201);
  });

  test("takes its files with it when the session is deleted", async () => {
    const sessionId = await created();
    await send(sessionId, [{ type: "file", mediaType: "image/png", url: dataUrl(png) }]);
    const path = `/v1/sessions/${sessionId}/files/${hashOf(png)}`;
    expect((await call(path)).status).toBe(200);
    await server.sessions.remove("default", sessionId);
    expect((await call(path)).status).toBe(404);
    expect(await server.flotilla.files.find(sessionId, hashOf(png))).toBeUndefined();
  });
});

/** An upload whose body is under way until it is ended: its status, and whether it is told when to come back. */
function slowUpload(url: string, given: Record<string, string>, bytes = 10) {
  const headers = { "content-type": "text/plain", ...given, "transfer-encoding": "chunked" };
  const call = request(url, { method: "POST", headers });
  const answered = new Promise<readonly [number, boolean]>((resolve, reject) => {
    // After its answer, the connection of a refused one is ended.
    call.on("error", reject);
    call.on("response", (response) => {
      response.resume();
      resolve([response.statusCode!, response.headers["retry-after"] !== undefined]);
    });
  });
  call.write(crypto.randomBytes(bytes));
  return { answered, end: () => call.end("the end") };
}
