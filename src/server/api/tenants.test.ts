import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { abort } from "../../base/errors.ts";
import { flow } from "../../flows/flow.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const admin = "a-key-of-16-chars-or-more";
const acmes = "a-key-of-an-acme-operator";
const acmeViewer = "a-key-of-an-acme-viewer";
const operatorOfAll = "a-key-of-an-operator-of-all";

let recovered = false;
const flaky = task("flaky", { attempts: 1 }, () => {
  if (!recovered) throw abort("no paper");
});
const order = flow("order", { version: 1 }).signal("approval", {}).end();

let server: Awaited<ReturnType<typeof startTestServer>>;
type Made = { failed: string; delayed: string; run: string };
let acme: Made;
let other: Made;

beforeAll(async () => {
  server = await startTestServer({
    use: [flaky, order],
    server: {
      apiKeys: [
        admin,
        { key: acmes, name: "acme-ops", role: "operator", tenant: "acme" },
        { key: acmeViewer, role: "viewer", tenant: "acme" },
        { key: operatorOfAll, role: "operator" },
      ],
      tokens: { secret, claims: { role: "role" } },
      login: (request) =>
        request.headers.get("cookie") === "sid=1"
          ? { user: "ada", role: "operator", tenant: "acme" }
          : null,
    },
  });
  [acme, other] = await Promise.all([made("acme"), made("other")]);
});
afterAll(() => server[Symbol.asyncDispose]());

const made = async (tenant: string): Promise<Made> => {
  const { flotilla } = server;
  const failed = await flotilla.enqueue(flaky, null, { tenant });
  const delayed = await flotilla.enqueue("mail", null, { tenant, delayMs: 3_600_000 });
  const { runId } = await flotilla.runs.start(order, null, { tenant });
  await until(
    "a failed task",
    async () => (await flotilla.tasks.get(failed.taskId))?.status === "failed",
  );
  await until("a run that waits", async () => {
    const run = await flotilla.runs.get(runId);
    return run?.doing?.type === "waiting_for_signal";
  });
  return { failed: failed.taskId, delayed: delayed.taskId, run: runId };
};
type Credentials = Record<string, string>;
const bearer = (key: string): Credentials => ({ Authorization: `Bearer ${key}` });
const ask = async (credentials: Credentials, method: string, path: string, body?: unknown) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: { "Content-Type": "application/json", ...credentials },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  return { status: answer.status, body: (await answer.json()) as any };
};
const token = (claims: Record<string, unknown>) =>
  new SignJWT({ sub: "ada", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));

/** An operator of acme by each kind of credential. */
const operators: [string, () => Promise<Credentials>][] = [
  ["a key", async () => bearer(acmes)],
  ["a token", async () => bearer(await token({ tenant: "acme", role: "operator" }))],
  ["a sign-in", async () => ({ Cookie: "sid=1" })],
];

describe.each(operators)("an operator of one tenant, by %s", (_, credentials) => {
  test("lists the tasks, runs and failures of that tenant only", async () => {
    const by = await credentials();
    const tasks = (await ask(by, "GET", "/v1/tasks")).body.tasks as { tenant: string }[];
    expect(tasks.length).toBeGreaterThan(0);
    const runs = (await ask(by, "GET", "/v1/runs")).body.runs as { tenant: string }[];
    const failures = (await ask(by, "GET", "/v1/dlq/tasks")).body.tasks as { tenant: string }[];
    for (const { tenant } of [...tasks, ...runs, ...failures]) expect(tenant).toBe("acme");
    expect([runs.length, failures.length]).toEqual([1, 1]);
    const groups = (await ask(by, "GET", "/v1/dlq/groups")).body;
    expect(groups).toMatchObject({ count: 1, tasks: 1, groups: [{ tasks: 1 }] });
    expect(groups.groups[0].taskIds).toEqual([acme.failed]);
    const ofAll = (await ask(bearer(operatorOfAll), "GET", "/v1/dlq/groups")).body;
    expect(ofAll.groups[0]).toMatchObject({ group: groups.groups[0].group, tasks: 2 });
  });

  test("is refused a filter by another tenant", async () => {
    const by = await credentials();
    for (const path of ["/v1/tasks", "/v1/runs", "/v1/dlq/tasks", "/v1/dlq/groups"]) {
      expect((await ask(by, "GET", `${path}?tenant=acme`)).status).toBe(200);
      expect(await ask(by, "GET", `${path}?tenant=other`)).toMatchObject({
        status: 403,
        body: { error: { code: "forbidden" } },
      });
    }
    const elsewhere = { all: true, tenant: "other" };
    expect((await ask(by, "POST", "/v1/dlq/redrives", elsewhere)).status).toBe(403);
  });

  test("finds nothing of another tenant's, just as if it weren't there, and changes nothing of it", async () => {
    const by = await credentials();
    const before = await Promise.all(
      Object.values(other).map((id) => server.flotilla.tasks.get(id)),
    );
    const paths: [string, string, unknown?][] = [
      ["GET", "/v1/tasks/{failed}"],
      ["GET", "/v1/tasks/{failed}/events"],
      ["GET", "/v1/tasks/{failed}/steps"],
      ["POST", "/v1/tasks/{failed}/retry"],
      ["POST", "/v1/tasks/{failed}/resume", {}],
      ["POST", "/v1/tasks/{delayed}/cancel"],
      ["POST", "/v1/tasks/{delayed}/signals", { name: "go" }],
      ["POST", "/v1/tasks/{run}/cancel"],
      ["GET", "/v1/runs/{run}"],
      ["GET", "/v1/runs/{run}/history"],
      ["GET", "/v1/runs/{run}/signals"],
      ["POST", "/v1/runs/{run}/signals", { name: "approval" }],
      ["POST", "/v1/runs/{run}/cancel"],
      ["POST", "/v1/runs/{run}/resume", {}],
      ["POST", "/v1/dlq/redrives", { taskId: "{failed}" }],
    ];
    for (const [method, path, body] of paths) {
      const at = (ids: Made, text: string) =>
        text.replace(/\{(\w+)\}/, (__, what: keyof Made) => ids[what]);
      const given = (ids: Made) =>
        body === undefined ? undefined : (JSON.parse(at(ids, JSON.stringify(body))) as object);
      const missing = { failed: "none", delayed: "none", run: "none" };
      const theirs = await ask(by, method, at(other, path), given(other));
      const none = await ask(by, method, at(missing, path), given(missing));
      expect([method, path, theirs.status]).toEqual([method, path, 404]);
      const ids = new RegExp(Object.values(other).join("|"), "g");
      expect(JSON.stringify(theirs.body).replaceAll(ids, "none")).toBe(JSON.stringify(none.body));
    }
    const after = await Promise.all(
      Object.values(other).map((id) => server.flotilla.tasks.get(id)),
    );
    expect(after).toEqual(before);
  });

  test("reads and acts on what is of that tenant", async () => {
    const by = await credentials();
    for (const path of [`/v1/tasks/${acme.failed}`, `/v1/runs/${acme.run}`])
      expect((await ask(by, "GET", path)).status).toBe(200);
    for (const more of ["events", "steps"])
      expect((await ask(by, "GET", `/v1/tasks/${acme.failed}/${more}`)).status).toBe(200);
    const signal = { name: "another" };
    expect((await ask(by, "POST", `/v1/runs/${acme.run}/signals`, signal)).status).toBe(202);
    const { taskId } = await server.flotilla.enqueue("mail", null, {
      tenant: "acme",
      delayMs: 3_600_000,
    });
    expect((await ask(by, "POST", `/v1/tasks/${taskId}/cancel`)).status).toBe(200);
    expect((await ask(by, "POST", `/v1/tasks/${taskId}/retry`)).status).toBe(200);
    expect((await ask(by, "POST", `/v1/tasks/${taskId}/cancel`)).status).toBe(200);
  });

  test("can't pause a name or set a limit, which concern all tenants", async () => {
    const by = await credentials();
    expect(await ask(by, "POST", "/v1/pause", { name: "mail" })).toMatchObject({
      status: 403,
      body: { error: { message: expect.stringContaining("all tenants") } },
    });
    const limit = { scope: "tenant/acme", limit: 1_000 };
    expect((await ask(by, "PUT", "/v1/limits", limit)).status).toBe(403);
    expect(await server.flotilla.tasks.paused()).toEqual([]);
  });
});

test("a viewer of one tenant changes nothing of it", async () => {
  const by = bearer(acmeViewer);
  expect((await ask(by, "GET", `/v1/tasks/${acme.delayed}`)).status).toBe(200);
  expect((await ask(by, "POST", `/v1/tasks/${acme.delayed}/cancel`)).status).toBe(403);
  expect(await server.flotilla.tasks.get(acme.delayed)).toMatchObject({ status: "pending" });
});

test("an operator of all tenants sees all of them, whichever a request names", async () => {
  for (const headers of [{}, { "Flotilla-Tenant": "acme" }] as Credentials[]) {
    const by = { ...bearer(operatorOfAll), ...headers };
    const { tasks } = (await ask(by, "GET", "/v1/tasks")).body as { tasks: { tenant: string }[] };
    expect(new Set(tasks.map(({ tenant }) => tenant))).toEqual(new Set(["acme", "other"]));
    for (const id of [acme.failed, other.failed])
      expect((await ask(by, "GET", `/v1/tasks/${id}`)).status).toBe(200);
  }
});

test("a token with a role and no tenant is for all tenants, and one without a role is not", async () => {
  const ofAll = bearer(await token({ role: "viewer" }));
  expect((await ask(ofAll, "GET", "/v1/pods")).status).toBe(200);
  expect((await ask(ofAll, "GET", `/v1/tasks/${other.failed}`)).status).toBe(200);
  const named = { ...ofAll, "Flotilla-Tenant": "acme" };
  expect((await ask(named, "GET", "/v1/sessions")).status).toBe(200);
  const plain = bearer(await token({ verbs: ["fleet:read", "tasks:read"] }));
  expect((await ask(plain, "GET", "/v1/pods")).status).toBe(403);
  expect((await ask(plain, "GET", `/v1/tasks/${other.failed}`)).status).toBe(404);
});

test("a redrive of all that has failed starts over what is of its operator's tenant", async () => {
  recovered = true;
  const by = bearer(acmes);
  const begun = await ask(by, "POST", "/v1/dlq/redrives", { all: true });
  expect(begun).toMatchObject({
    status: 202,
    body: { selection: { all: true, tenant: "acme" } },
  });
  const { redriveId } = begun.body as { redriveId: string };
  const ended = await server.flotilla.deadLetters.followRedrive(redriveId);
  expect(ended).toMatchObject({ state: "done", taken: 1, succeeded: 1 });
  expect(await server.flotilla.tasks.get(acme.failed)).toMatchObject({ status: "completed" });
  expect(await server.flotilla.tasks.get(other.failed)).toMatchObject({ status: "failed" });

  const ofAll = await ask(bearer(operatorOfAll), "POST", "/v1/dlq/redrives", {
    name: "none",
    maxStep: 1,
  });
  const others = `/v1/dlq/redrives/${ofAll.body.redriveId}`;
  expect((await ask(by, "GET", others)).status).toBe(404);
  expect((await ask(by, "POST", `${others}/cancel`)).status).toBe(404);
  expect((await ask(by, "GET", `/v1/dlq/redrives/${redriveId}`)).status).toBe(200);
  const listed = (await ask(by, "GET", "/v1/dlq/redrives?limit=1")).body;
  expect(listed).toMatchObject({ redrives: [{ redriveId }], next: null });
  const all = (await ask(bearer(operatorOfAll), "GET", "/v1/dlq/redrives")).body;
  expect(all.redrives).toHaveLength(2);
});
