import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { flow } from "../../flows/flow.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const readers = "a-key-that-reads-tasks";
const shops = "a-key-of-one-shop-here";
const mail = task("mail", {}, () => "sent");
const order = flow("order", { version: 1 })
  .to("reserve", () => ({ reserved: true }))
  .end();
let server: Awaited<ReturnType<typeof startTestServer>>;
/** Of the tenant acme, and of another. */
let ours: { task: string; run: string };
let theirs: { task: string; run: string };

beforeAll(async () => {
  const apiKeys = [
    key,
    { key: readers, verbs: ["tasks:read" as const] },
    { key: shops, tenant: "acme" },
  ];
  server = await startTestServer({ use: [mail, order], server: { tokens: { secret }, apiKeys } });
  [ours, theirs] = [await made("acme"), await made("other")];
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = async (
  bearer: string,
  method: string,
  path: string,
  body?: unknown,
  tenant = "acme",
) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${bearer}`,
      "Flotilla-Tenant": tenant,
      "Content-Type": "application/json",
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  return { status: answer.status, body: (await answer.json()) as any };
};
const made = async (tenant: string) => {
  const options = { tenant };
  const { taskId } = (await ask(key, "POST", "/v1/tasks", { name: "mail", options })).body;
  const { runId } = (await ask(key, "POST", "/v1/runs", { flow: "order", options })).body;
  return { task: `/v1/tasks/${taskId}`, run: `/v1/runs/${runId}` };
};
const token = (claims: Record<string, unknown>) =>
  new SignJWT({ sub: "ada", tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
const reader = () => token({ verbs: ["tasks:read"] });
const forbidden = (verb: string) => ({
  status: 403,
  body: { error: { code: "forbidden", details: { verb } } },
});

describe("a token with tasks:read", () => {
  test("reads a task and a run of its tenant, whole", async () => {
    const bearer = await reader();
    for (const path of [ours.task, ours.run]) {
      const seen = await ask(bearer, "GET", path);
      expect(seen.status).toBe(200);
      const byAdmin = await ask(key, "GET", path);
      expect(Object.keys(seen.body.task ?? seen.body.run)).toEqual(
        Object.keys(byAdmin.body.task ?? byAdmin.body.run),
      );
    }
  });

  test("finds nothing of another tenant's, just as if it weren't there", async () => {
    const bearer = await reader();
    for (const [there, missing] of [
      [theirs.task, "/v1/tasks/none"],
      [theirs.run, "/v1/runs/none"],
    ] as const) {
      const found = await ask(bearer, "GET", there);
      const none = await ask(bearer, "GET", missing);
      expect([found.status, none.status]).toEqual([404, 404]);
      const id = there.split("/").at(-1)!;
      expect(JSON.stringify(found.body).replace(id, "none")).toBe(JSON.stringify(none.body));
      expect((await ask(key, "GET", there)).status).toBe(200);
    }
  });

  test("lists nothing and changes nothing", async () => {
    const bearer = await reader();
    for (const [verb, method, path, body] of [
      ["fleet:read", "GET", "/v1/tasks"],
      ["fleet:read", "GET", "/v1/runs"],
      ["fleet:read", "GET", "/v1/flows"],
      ["admin", "POST", "/v1/tasks", { name: "mail" }],
      ["admin", "POST", "/v1/runs", { flow: "order" }],
      ["fleet:operate", "POST", `${ours.task}/cancel`],
      ["fleet:operate", "POST", `${ours.task}/retry`],
      ["fleet:operate", "POST", `${ours.run}/cancel`],
      ["fleet:operate", "POST", `${ours.run}/signals`, { name: "x" }],
      ["fleet:operate", "POST", `${ours.run}/resume`, {}],
      ["fleet:read", "GET", `${ours.run}/history`],
    ] as const) {
      expect(await ask(bearer, method, path, body)).toMatchObject(forbidden(verb));
    }
    expect(await ask(bearer, "GET", "/v1/sessions")).toMatchObject(forbidden("sessions:read"));
  });
});

test("a token that doesn't name tasks:read may not read", async () => {
  const all = ["sessions:read", "sessions:any", "sessions:manage", "inbox:read", "admin"];
  for (const claims of [{}, { verbs: all }, { scope: "openid sessions:read" }]) {
    const bearer = await token(claims);
    for (const path of [ours.task, ours.run]) {
      expect(await ask(bearer, "GET", path)).toMatchObject(forbidden("tasks:read"));
    }
  }
  expect((await ask(await token({ scope: "tasks:read" }), "GET", ours.task)).status).toBe(200);
});

describe("a key", () => {
  test("that was given tasks:read reads those of the tenant that it acts for", async () => {
    for (const [tenant, seen] of [
      ["acme", [200, 200, 404, 404]],
      ["other", [404, 404, 200, 200]],
    ] as const) {
      const paths = [ours.task, ours.run, theirs.task, theirs.run];
      const answers = await Promise.all(
        paths.map((path) => ask(readers, "GET", path, undefined, tenant)),
      );
      expect(answers.map(({ status }) => status)).toEqual(seen);
    }
    expect(await ask(readers, "GET", "/v1/tasks")).toMatchObject(forbidden("fleet:read"));
  });

  test("of a tenant that wasn't given it has what concerns sessions only", async () => {
    expect(await ask(shops, "GET", ours.task)).toMatchObject(forbidden("tasks:read"));
    expect((await ask(shops, "GET", "/v1/sessions")).status).toBe(200);
  });

  test("of an administrator reads those of every tenant", async () => {
    const answers = await Promise.all(
      [ours.task, ours.run, theirs.task, theirs.run].map((path) => ask(key, "GET", path)),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });
});
