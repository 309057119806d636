/**
 * What the fuzz talks to: a server in a process of its own, on a store with two tenants. Everything that a
 * tenant has put in holds a text that only its own callers may see, and secrets that no caller may.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { SignJWT } from "jose";
import type { ServerConfig } from "../../src/runtime/server-config.ts";
import type { Fleet } from "../crash/fleet.ts";
import { type KeyedServer, startKeyedServer } from "../crash/keyed-server.ts";
import type { Known } from "./draw.ts";
import { installWatch, type Watched } from "./watch.ts";

export const tenants = ["acme", "umbra"] as const;
export type Tenant = (typeof tenants)[number];

/**
 * Texts of each tenant: what users put in, what is shown to all that may see the tenant, and what is in
 * sessions of other users than those that call.
 */
export const canaries = {
  acme: {
    inside: "canary-inside-acme-9e4b",
    label: "canary-label-acme-5c1d",
    private: "canary-private-acme-6d0c",
  },
  umbra: {
    inside: "canary-inside-umbra-7f2a",
    label: "canary-label-umbra-3b8e",
    private: "canary-private-umbra-1a9f",
  },
} as const satisfies Record<Tenant, unknown>;

const signs = `whsec_${Buffer.from("a canary that signs requests").toString("base64")}`;
/** Known by its form, by its name, and never shown since it was stored. */
export const secrets = ["sk-canary-0f1e2d3c4b5a69788796", "the-canary-in-a-coal-mine", signs];

export type FuzzCaller = {
  readonly headers: Readonly<Record<string, string>>;
  /** Whose content it may see: that of all, of one tenant, or none. */
  readonly sees: "all" | Tenant | "none";
  /** Sees what users put in. Else it sees the shape of it. */
  readonly payloads: boolean;
  /** It is a member of sessions, and sees them as they are. */
  readonly isMember: boolean;
  /** It sees those that it is a member of, and no others. */
  readonly isUser?: boolean;
};

export type World = {
  readonly server: KeyedServer;
  readonly callers: Readonly<Record<string, FuzzCaller>>;
  /** What there is to ask for, as of the last `refill`. */
  readonly known: Known;
  /** Puts back what requests have used up. */
  refill(): Promise<void>;
  /** Entries of the audit and changes of what acts change, since the last call. */
  watched(): Promise<Watched>;
  /** Lines of the server's log that tell of a fault of its own. */
  faults(): string[];
};

const adminKey = "a-key-of-the-administrator";
const tokenSecret = "a secret of thirty-two characters or more";
const usual = ["sessions:read", "sessions:write", "inbox:read"];

const configKeys = {
  admin: { sees: "all", payloads: true, role: "admin" },
  viewer: { sees: "all", payloads: false, role: "viewer" },
  reader: { sees: "all", payloads: true, role: "viewer", verbs: ["payloads:read"] },
  operator: { sees: "all", payloads: false, role: "operator" },
  "acme's viewer": { sees: "acme", payloads: false, role: "viewer", tenant: "acme" },
  "acme's operator": { sees: "acme", payloads: false, role: "operator", tenant: "acme" },
  "umbra's operator": { sees: "umbra", payloads: false, role: "operator", tenant: "umbra" },
  "umbra's chat": { sees: "umbra", payloads: true, tenant: "umbra" },
} as const;

/** No request is refused for its number, so that each is looked at. */
const unlimited = { user: 1_000_000, key: 1_000_000, address: 1_000_000 };

export async function openWorld(fleet: Fleet): Promise<World> {
  const config: ServerConfig = {
    apiKeys: Object.entries(configKeys).map(([name, key]) => ({
      name,
      key: keyTextOf(name),
      ...("role" in key && { role: key.role }),
      ...("verbs" in key && { verbs: key.verbs }),
      ...("tenant" in key && { tenant: key.tenant }),
    })),
    tokens: { secret: tokenSecret, claims: { role: "role" } },
    requestsPerSecond: unlimited,
  };
  const server = await startKeyedServer(fleet, config);
  const { url } = server;
  const call = async (method: string, path: string, body?: unknown, headers: object = {}) => {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${adminKey}`,
        ...(body !== undefined && { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    // oxlint-disable-next-line typescript/no-explicit-any
    const read = (text.startsWith("{") ? JSON.parse(text) : {}) as any;
    return { status: answer.status, body: read };
  };
  const stored = async (name: string, rights: object): Promise<{ keyId: string; text: string }> => {
    const { body } = await call("POST", "/v1/keys", { name, ...rights });
    return { keyId: body.key.keyId, text: body.text };
  };
  const callers = await makeCallers(stored, call);
  const watched = await installWatch(fleet);
  let known: Known = {};
  let round = 0;

  const refill = async (): Promise<void> => {
    const [sessionIds, spare] = await Promise.all([
      fillSessions(call, ++round),
      stored(`spare ${round}`, { role: "viewer" }),
    ]);
    await fillTasks(fleet);
    await fillRest(call);
    const redriveIds = await Promise.all(
      tenants.map(async (tenant) => {
        const { body } = await call("POST", "/v1/dlq/redrives", { name: "spare", tenant });
        return String(body.redriveId);
      }),
    );
    const bulkIds = await Promise.all(
      tenants.map(async (tenant) => {
        const filter = { name: "spare", tenant };
        const { body } = await call("POST", "/v1/bulk", { action: "retry", filter });
        return String(body.bulkId);
      }),
    );
    known = {
      ...alwaysKnown,
      session: sessionIds,
      sessionId: sessionIds,
      keyId: [spare.keyId],
      redriveId: redriveIds,
      bulkId: bulkIds,
      group: await groupsOf(call),
      cursor: await cursorsOf(call),
    };
    await watched();
  };
  await refill();
  return {
    server,
    callers,
    get known() {
      return known;
    },
    refill,
    watched,
    faults: () => faultsIn(fleet.folder),
  };
}

type Call = (
  method: string,
  path: string,
  body?: unknown,
  headers?: object,
  // oxlint-disable-next-line typescript/no-explicit-any
) => Promise<{ status: number; body: any }>;

type Stored = (name: string, rights: object) => Promise<{ keyId: string; text: string }>;

async function makeCallers(stored: Stored, call: Call): Promise<Record<string, FuzzCaller>> {
  const bearer = (text: string) => ({ Authorization: `Bearer ${text}` });
  const ofConfig = Object.entries(configKeys).map(([name, { sees, payloads }]) => [
    name,
    { headers: bearer(keyTextOf(name)), sees, payloads, isMember: false },
  ]);
  const own = { payloads: true, isMember: true } as const;
  const none = { sees: "none", payloads: false, isMember: false } as const;
  const [operator, viewer, revoked] = await Promise.all([
    stored("of the store", { role: "operator", tenant: "acme" }),
    stored("reads payloads", { role: "viewer", tenant: "umbra", payloads: true }),
    stored("revoked", { role: "admin" }),
  ]);
  await call("DELETE", `/v1/keys/${revoked.keyId}`);
  const ada = await tokenOf("ada", { tenant: "acme", verbs: [...usual, "tasks:read"] });
  const bob = await tokenOf("bob", { tenant: "umbra", verbs: usual });
  const manages = [...usual, "sessions:create", "sessions:manage", "sessions:any"];
  const eve = await tokenOf("eve", { tenant: "acme", verbs: manages });
  const signedIn = await tokenOf("ops", { tenant: "acme", role: "viewer", verbs: [] });
  const expired = await tokenOf("ada", { tenant: "acme", verbs: usual }, "-1h");
  return {
    ...(Object.fromEntries(ofConfig) as Record<string, FuzzCaller>),
    "a key of the store": {
      headers: bearer(operator.text),
      sees: "acme",
      payloads: false,
      isMember: false,
    },
    "a reader of the store": {
      headers: bearer(viewer.text),
      sees: "umbra",
      payloads: true,
      isMember: false,
    },
    "the user ada": { headers: bearer(ada), sees: "acme", isUser: true, ...own },
    "the user bob": { headers: bearer(bob), sees: "umbra", isUser: true, ...own },
    "the user eve": { headers: bearer(eve), sees: "acme", ...own },
    "a user with a role": {
      headers: bearer(signedIn),
      sees: "acme",
      payloads: false,
      isMember: false,
    },
    "a revoked key": { headers: bearer(revoked.text), ...none },
    "an expired token": { headers: bearer(expired), ...none },
    "a wrong key": { headers: bearer("a-key-that-was-never-made"), ...none },
    none: { headers: {}, ...none },
  };
}

function keyTextOf(name: string): string {
  return name === "admin" ? adminKey : `a-key-in-the-config:${name.replaceAll(/\W/g, "-")}`;
}

function tokenOf(user: string, claims: object, expires = "8h"): Promise<string> {
  return new SignJWT({ sub: user, ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setIssuedAt()
    .setExpirationTime(expires)
    .sign(new TextEncoder().encode(tokenSecret));
}

/** What the tasks and runs of a tenant hold. */
function contentOf(tenant: Tenant): string {
  const { inside } = canaries[tenant];
  return JSON.stringify({ note: `${inside} ${secrets[0]}`, deep: [{ password: secrets[1] }] });
}

const taskStates = [
  "pending",
  "failed",
  "failed-again",
  "aside",
  "completed",
  "cancelled",
  "spare-failed",
];
const runStates = ["run", "run-waits", "run-failed", "run-aside"];
const idsOf = (states: readonly string[]) =>
  tenants.flatMap((tenant) => states.map((state) => `${tenant}-${state}`));

/** Of what doesn't change from one refill to the next. */
const alwaysKnown: Known = {
  taskId: idsOf([...taskStates, ...runStates]),
  after: idsOf(["pending", "run"]),
  runId: idsOf(runStates),
  parent: idsOf(runStates),
  scheduleId: ["nightly", "hourly", "none"],
  name: ["mail", "order", "helper", "clerk", "api", "work"],
  flow: ["order", "none"],
  agent: ["clerk", "helper"],
  agents: ["clerk", "helper"],
  to: ["clerk"],
  topics: [
    "overview,queues,throttles,pods",
    "failures,audit",
    ...idsOf(taskStates).map((taskId) => `task:${taskId},tasks:${taskId}/none`),
    ...idsOf(runStates).map((runId) => `run:${runId},flow:order`),
  ],
  // Not those of the tokens, which a revocation would end.
  user: ["zoe", "kim"],
  users: ["ada", "bob", "zoe", "kim"],
  addUsers: ["zoe", "kim"],
  removeUsers: ["zoe", "kim"],
  author: ["zoe", "ada"],
  tenant: [...tenants, "default"],
  messageId: ["m-1", "m-2"],
  page: ["quickstart.md", "none.md"],
  jti: ["jti-1"],
  action: ["tasks.cancel", "names.pause"],
  actor: ["key/admin", "key/operator"],
  subject: ["acme-pending", "mail"],
};

type Columns = Readonly<Record<string, string | number | null>>;

/** One task and one run of each tenant in every state that acts are for. */
async function fillTasks({ sql }: Fleet): Promise<void> {
  const filled = tenants.flatMap((tenant) =>
    [...taskStates, ...runStates].map((state) => taskOf(tenant, state)),
  );
  const insert = (name: string, rows: readonly Columns[]) => {
    const places = rows.map((row) => `(${Object.keys(row).fill("?").join()})`);
    return sql(
      `insert into flotilla_${name} (${Object.keys(rows[0]!).join()}) values ${places.join()}`,
      ...rows.flatMap((row) => Object.values(row)),
    );
  };
  await sql("update flotilla_redrive set state = 'done' where state in ('running', 'stopping')");
  const ids = filled.map(({ task }) => task["task_id"]!);
  const among = ids.map(() => "?").join();
  for (const [name, key] of [
    ["task_event", "task_id"],
    ["task_signal", "task_id"],
    ["step_journal", "owner_id"],
    ["task", "task_id"],
  ] as const)
    await sql(`delete from flotilla_${name} where ${key} in (${among})`, ...ids);
  await insert(
    "task",
    filled.map(({ task }) => task),
  );
  await insert(
    "task_event",
    filled.map(({ event }) => event),
  );
  await insert(
    "step_journal",
    filled.map(({ step }) => step),
  );
  await sql("insert into flotilla_throttle (name, bound) values ('api', 5) on conflict do nothing");
}

function taskOf(tenant: Tenant, state: string) {
  const { inside, label } = canaries[tenant];
  const content = contentOf(tenant);
  const taskId = `${tenant}-${state}`;
  const isRun = state.startsWith("run");
  const status = /failed|completed|cancelled/.exec(state)?.[0] ?? "pending";
  const isAside = state.endsWith("aside");
  const waits = state.endsWith("waits");
  const code = state === "failed" ? "handler_failed" : "timeout";
  const error = JSON.stringify({ code, message: `no way: ${inside} "apiKey":"${secrets[1]}"` });
  const task: Columns = {
    task_id: taskId,
    tenant,
    name: isRun ? "order" : state.startsWith("spare") ? "spare" : "mail",
    status,
    payload: content,
    parked: isAside ? 6 : waits ? 5 : 0,
    unique_key: `${label}-${state}`,
    progress: content,
    result: status === "completed" ? content : null,
    error: status === "failed" ? error : null,
    state: isRun ? content : null,
    flow_version: isRun ? 1 : null,
    awaits: waits ? "approve" : null,
    waiting: waits ? '{"for":"signal","sinceMs":1,"untilMs":null}' : null,
    set_aside: isAside ? JSON.stringify({ reason: "unknown_transition", message: inside }) : null,
    set_aside_version: isAside ? 1 : null,
  };
  const detail = JSON.stringify({ error: { code: "handler_failed", message: inside } });
  const event: Columns = {
    task_id: taskId,
    seq: 1,
    type: "retry",
    // Shown to all that may see the task, whatever else they may see.
    pod_id: `${label}-pod`,
    detail,
  };
  const step: Columns = {
    owner_id: taskId,
    key: `${label}-step`,
    seq: 1,
    token: 1,
    kind: "done",
    value: content,
    started_at: 1,
  };
  return { task, event, step };
}

async function fillSessions(call: Call, round: number): Promise<string[]> {
  const made = tenants.flatMap((tenant) =>
    ["own", "other"].map(async (which) => {
      const sessionId = `${tenant}-${which}-${round}`;
      const headers = { "Flotilla-Tenant": tenant };
      const isOwn = which === "own";
      const text = isOwn ? canaries[tenant].inside : canaries[tenant].private;
      const users = isOwn ? ["ada", "bob"] : ["zoe"];
      const metadata = { note: `${text} ${secrets[0]}`, deep: [{ password: secrets[1] }] };
      await call(
        "POST",
        "/v1/sessions",
        { sessionId, users, agents: ["clerk"], metadata },
        headers,
      );
      const parts = [{ type: "text", text: `${text} with ${secrets[0]}` }];
      const message = { id: "m-1", author: users[0], parts, metadata };
      await call("POST", `/v1/sessions/${sessionId}/messages`, message, headers);
      return sessionId;
    }),
  );
  return Promise.all(made);
}

/** What there is one of for all: an agent of each tenant, schedules, limits. */
async function fillRest(call: Call): Promise<void> {
  for (const tenant of tenants) {
    const { inside } = canaries[tenant];
    const settings = {
      url: "https://agent.example/chat",
      headers: { "X-Api-Key": secrets[1] },
    };
    await call(
      "POST",
      "/v1/agents",
      { name: "helper", settings, secret: signs },
      { "Flotilla-Tenant": tenant },
    );
    const input = { note: inside, password: secrets[1] };
    const scheduleId = tenant === "acme" ? "nightly" : "hourly";
    const schedule = { name: "mail", pattern: "0 3 * * *", input, options: { tenant } };
    await call("PUT", `/v1/schedules/${scheduleId}`, schedule);
  }
}

async function groupsOf(call: Call): Promise<string[]> {
  const { body } = await call("GET", "/v1/dlq/groups");
  return (body.groups as { group: string }[]).map(({ group }) => group);
}

async function cursorsOf(call: Call): Promise<string[]> {
  const lists = ["tasks", "runs", "audit", "keys", "schedules", "dlq/tasks"];
  const pages = await Promise.all(lists.map((list) => call("GET", `/v1/${list}?limit=1`)));
  return pages.flatMap(({ body }) => (typeof body.next === "string" ? [body.next as string] : []));
}

function faultsIn(folder: string): string[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".log"));
  return files.flatMap((name) =>
    readFileSync(join(folder, name), "utf8")
      .split("\n")
      .filter((line) => line.includes('"level":"error"')),
  );
}
