import crypto from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { file } from "../../files/new-file.ts";
import type { FileRef } from "../../protocol/file.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer, type TestServer } from "../contract/test-server.ts";

const keys = {
  admin: "the-key-of-an-administrator",
  other: "the-key-of-another-administrator",
  operator: "the-key-of-an-operator",
  acme: "the-key-of-another-tenant",
};
const hashOf = (text: string) => crypto.hash("sha256", text, "hex");
type Body = { doc: FileRef };
const shout = task<Body>("shout", {}, async ({ input, files }) => {
  const text = await new Response(files.stream(input.doc)).text();
  return { doc: file(new TextEncoder().encode(text.toUpperCase()), { mediaType: "text/html" }) };
});

let server: TestServer;
beforeAll(async () => {
  const apiKeys = [
    { key: keys.admin, name: "admin", role: "admin" },
    { key: keys.other, name: "other", role: "admin" },
    { key: keys.operator, name: "operator", role: "operator" },
    { key: keys.acme, name: "acme", tenant: "acme", role: "viewer", verbs: ["payloads:read"] },
  ] as const;
  server = await startTestServer({ use: [shout], server: { apiKeys: [...apiKeys] } });
});
afterAll(() => server[Symbol.asyncDispose]());

type Who = keyof typeof keys;
const call = (path: string, { who = "admin", ...init }: RequestInit & { who?: Who } = {}) =>
  fetch(server.url + path, {
    ...init,
    headers: { authorization: `Bearer ${keys[who]}`, ...(init.headers as object) },
  });
const upload = (body: string, { query = "", who = "admin" as Who } = {}) =>
  call(`/v1/files${query}`, {
    method: "POST",
    body,
    headers: { "content-type": "text/plain" },
    who,
  });
const enqueue = (doc: unknown, { who = "admin" as Who, options = {}, path = "/v1/tasks" } = {}) =>
  call(path, {
    method: "POST",
    body: JSON.stringify(
      path.endsWith("bulk")
        ? [{ name: "shout", input: { doc }, options }]
        : { name: "shout", input: { doc }, options },
    ),
    headers: { "content-type": "application/json" },
    who,
  });
const codeOf = async (answer: Response) =>
  ((await answer.json()) as { error: { code: string } }).error.code;

describe("files of tasks over HTTP", () => {
  test("are uploaded, given to a task, and read with what it returns", async () => {
    const uploaded = await upload("hello", { query: "?filename=hello.txt&size=5" });
    expect(uploaded.status).toBe(201);
    const doc = (await uploaded.json()) as FileRef;
    expect(doc).toEqual({
      type: "file",
      url: `flotilla-file:${hashOf("hello")}`,
      mediaType: "text/plain",
      filename: "hello.txt",
      size: 5,
    });
    const stored = await enqueue({ ...doc, size: 1, mediaType: "text/html" });
    expect(stored.status).toBe(201);
    const { taskId } = (await stored.json()) as { taskId: string };
    const result = (await server.flotilla.waitFor(taskId)) as unknown as Body;
    expect(result.doc.url).toBe(`flotilla-file:${hashOf("HELLO")}`);
    const at = `/v1/tasks/${taskId}/files`;
    const part = await call(`${at}/${hashOf("hello")}`, { headers: { range: "bytes=1-2" } });
    expect([part.status, await part.text()]).toEqual([206, "el"]);
    const answer = await call(`${at}/${hashOf("HELLO")}`);
    // A page that a task has made runs nothing here.
    expect(answer.headers.get("content-type")).toBe("application/octet-stream");
    expect(answer.headers.get("content-disposition")).toContain("attachment");
    expect(answer.headers.get("content-security-policy")).toContain("sandbox");
    expect(await answer.text()).toBe("HELLO");
    const { task: read } = (await (await call(`/v1/tasks/${taskId}`)).json()) as {
      task: { payload: Body };
    };
    expect(read.payload.doc).toEqual(doc);

    // Who may not read payloads, and who is of another tenant, gets none.
    const operator = await call(`${at}/${hashOf("hello")}`, { who: "operator" });
    expect([operator.status, await codeOf(operator)]).toEqual([403, "forbidden"]);
    for (const [path, who] of [
      [`${at}/${hashOf("hello")}`, "acme"],
      [`${at}/${hashOf("other")}`, "admin"],
      [`${at}/x`, "admin"],
      [`/v1/tasks/none/files/${hashOf("hello")}`, "admin"],
    ] as const) {
      const refused = await call(path, { who });
      expect([refused.status, await codeOf(refused)]).toEqual([404, "not_found"]);
    }
  });

  test("count for whom has uploaded them, in the tenant that they were uploaded for", async () => {
    const doc = (await (await upload("mine")).json()) as FileRef;
    expect(await codeOf(await enqueue(doc, { who: "other" }))).toBe("not_found");
    expect(await codeOf(await enqueue(doc, { options: { tenant: "acme" } }))).toBe("not_found");
    const rows = await enqueue(doc, { who: "other", path: "/v1/tasks/bulk" });
    expect(await rows.json()).toMatchObject({ rejected: 1, outcomes: [{ code: "not_found" }] });
    expect(await (await enqueue(doc, { path: "/v1/tasks/bulk" })).json()).toMatchObject({
      created: 1,
    });
    await upload("mine", { query: "?tenant=acme" });
    expect((await enqueue(doc, { options: { tenant: "acme" } })).status).toBe(201);
    // A guess at what a conversation has.
    await server.sessions.create("default", { sessionId: "s", agents: [], users: ["ada"] });
    await server.flotilla.files.upload("default", "s", [new TextEncoder().encode("secret")]);
    const forged = { ...doc, url: `flotilla-file:${hashOf("secret")}` };
    expect(await codeOf(await enqueue(forged))).toBe("not_found");
  });

  test("that lie about their size, are empty or are not for this caller are refused", async () => {
    const refusals = [
      [await upload("abc", { query: "?size=2" }), "invalid_input"],
      [await upload("", {}), "invalid_input"],
      [await upload("abc", { query: `?sha256=${"0".repeat(64)}` }), "invalid_input"],
      [await upload("abc", { query: "?size=99999999999" }), "payload_too_large"],
      [await upload("abc", { who: "operator" }), "forbidden"],
      [await upload("abc", { who: "acme" }), "forbidden"],
    ] as const;
    for (const [answer, code] of refusals) expect(await codeOf(answer)).toBe(code);
  });
});
