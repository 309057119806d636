import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { inHandler, somethingToActOn } from "../../audit/contract/harness.ts";
import { type Action, actions } from "../../audit/act.ts";
import type { Database } from "../../store/database.ts";
import { openStore } from "../../store/open.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";
import { allSpecs } from "../openapi.ts";

const testStore = openTestStore();
const { flotilla } = testStore;
let database: Database;
beforeAll(async () => {
  await flotilla.tasks.stats();
  database = await openStore(testStore.store);
});
beforeEach(() => database.write(somethingToActOn()));
afterAll(() => database.close());

const key = "an-operators-key-of-this-server";
const usersKey = "a-key-for-sessions-of-one-tenant";
const app = appHarness(flotilla, {
  apiKeys: [
    { key, name: "web", admin: true },
    { key: usersKey, name: "chat", tenant: "acme" },
  ],
});
const asWeb = { Authorization: `Bearer ${key}`, "Flotilla-User": "zoe" };

const agent = { name: "helper", settings: { url: "https://agent.example/chat" } };
const nightly = { name: "mail", pattern: "0 3 * * *" };
const putNightly = () => flotilla.schedules.put("nightly", nightly);
const makeHelper = () => flotilla.agents.create("default", "helper", { settings: agent.settings });
let redriveId = "";
let group = "";
const findGroup = async () => {
  group = (await flotilla.deadLetters.groups()).groups[0]!.group;
};
let bulkId = "";
let keyId = "";
const makeKey = async () => {
  ({
    key: { keyId },
  } = await flotilla.keys.create({ name: "ci", role: "viewer" }));
};

/** A path with the ids of what was arranged. */
const pathTo = (path: string) =>
  path
    .replace("{redriveId}", redriveId)
    .replace("{bulkId}", bulkId)
    .replace("{keyId}", keyId)
    .replace("{group}", group);

type RouteCase =
  | {
      /** Its answer holds a secret that is shown once: sent again, it is refused. */
      readonly shownOnce?: true;
      readonly action: Action;
      readonly path: string;
      readonly body?: unknown;
      readonly arrange?: () => Promise<unknown>;
    }
  | { readonly noAct: string };

const sending = { noAct: "sends work to the fleet, and changes nothing that is there" };

/** Every route that changes something and needs more than a verb of sessions. */
const routes: Record<string, RouteCase> = {
  enqueueTask: sending,
  enqueueTasks: sending,
  enqueueGraph: sending,
  startRun: sending,
  uploadTaskFile: { noAct: "brings a file for work that is sent, which waits an hour for it" },
  deliverToHook: { noAct: "says in a session what another service has signed, as members do" },
  cancelTask: { action: "tasks.cancel", path: "/v1/tasks/pending/cancel" },
  retryTask: { action: "tasks.retry", path: "/v1/tasks/failed/retry" },
  resumeTask: { action: "tasks.resume", path: "/v1/tasks/aside/resume", body: {} },
  signalTask: { action: "tasks.signal", path: "/v1/tasks/pending/signals", body: { name: "paid" } },
  cancelRun: { action: "runs.cancel", path: "/v1/runs/run/cancel" },
  resumeRun: { action: "runs.resume", path: "/v1/runs/run-aside/resume", body: {} },
  signalRun: { action: "runs.signal", path: "/v1/runs/run/signals", body: { name: "approved" } },
  pause: { action: "names.pause", path: "/v1/pause", body: { name: "mail", reason: "repairs" } },
  resume: {
    action: "names.resume",
    path: "/v1/resume",
    body: { name: "mail" },
    arrange: () => flotilla.tasks.pause("mail"),
  },
  setLimit: { action: "limits.set", path: "/v1/limits", body: { scope: "tenant/acme", limit: 5 } },
  putSchedule: { action: "schedules.put", path: "/v1/schedules/nightly", body: nightly },
  pauseSchedule: {
    action: "schedules.pause",
    path: "/v1/schedules/nightly/pause",
    arrange: putNightly,
  },
  resumeSchedule: {
    action: "schedules.resume",
    path: "/v1/schedules/nightly/resume",
    arrange: async () => {
      await putNightly();
      await flotilla.schedules.pause("nightly");
    },
  },
  fireSchedule: {
    action: "schedules.fire",
    path: "/v1/schedules/nightly/fire",
    arrange: putNightly,
  },
  removeSchedule: {
    action: "schedules.remove",
    path: "/v1/schedules/nightly",
    arrange: putNightly,
  },
  createKey: {
    action: "keys.create",
    path: "/v1/keys",
    body: { name: "ci", role: "viewer" },
    shownOnce: true,
  },
  revokeKey: { action: "keys.revoke", path: "/v1/keys/{keyId}", arrange: makeKey },
  rotateKey: {
    action: "keys.rotate",
    path: "/v1/keys/{keyId}/rotate",
    body: {},
    arrange: makeKey,
    shownOnce: true,
  },
  revokeTokens: {
    action: "tokens.revoke",
    path: "/v1/tokens/revocations",
    body: { user: "zoe" },
  },
  startRedrive: { action: "redrives.start", path: "/v1/dlq/redrives", body: { name: "mail" } },
  cancelRedrive: {
    action: "redrives.cancel",
    path: "/v1/dlq/redrives/{redriveId}/cancel",
    arrange: async () => {
      ({ redriveId } = await flotilla.deadLetters.redrive({ name: "mail" }));
    },
  },
  resolveErrorGroup: {
    action: "failures.resolve",
    path: "/v1/dlq/groups/{group}/resolve",
    arrange: findGroup,
  },
  ignoreErrorGroup: {
    action: "failures.ignore",
    path: "/v1/dlq/groups/{group}/ignore",
    body: { untilMs: 4_000_000_000_000 },
    arrange: findGroup,
  },
  reopenErrorGroup: {
    action: "failures.reopen",
    path: "/v1/dlq/groups/{group}/reopen",
    arrange: async () => {
      await findGroup();
      await flotilla.deadLetters.resolve(group);
    },
  },
  previewBulk: { noAct: "counts what an act would be for" },
  startBulk: {
    action: "bulk.start",
    path: "/v1/bulk",
    body: { action: "cancel", filter: { name: "mail" } },
  },
  stopBulk: {
    action: "bulk.stop",
    path: "/v1/bulk/{bulkId}/stop",
    arrange: async () => {
      ({ bulkId } = await flotilla.bulk.start({ action: "cancel", filter: { name: "mail" } }));
    },
  },
  drainPod: { action: "pods.drain", path: "/v1/pods/pod/drain" },
  undrainPod: {
    action: "pods.undrain",
    path: "/v1/pods/pod/undrain",
    arrange: () => flotilla.drainPod("pod"),
  },
  discardDeadLetters: { action: "tasks.discard", path: "/v1/dlq/discard", body: { name: "mail" } },
  pinThrottle: { action: "throttles.pin", path: "/v1/throttles/api/pin", body: { limit: 3 } },
  unpinThrottle: {
    action: "throttles.unpin",
    path: "/v1/throttles/api/unpin",
    body: {},
    arrange: () => flotilla.throttles.pin("api", 3),
  },
  createAgent: { action: "agents.create", path: "/v1/agents", body: agent },
  replaceAgent: {
    action: "agents.replace",
    path: "/v1/agents/helper",
    body: { settings: agent.settings },
    arrange: makeHelper,
  },
  removeAgent: { action: "agents.remove", path: "/v1/agents/helper", arrange: makeHelper },
};

const changing = allSpecs.filter(
  ({ method, verb = "admin" }) => method !== "get" && !/^(?:sessions|inbox|tasks):/.test(verb),
);
const acting = changing.flatMap(({ operationId, method }) => {
  const found = routes[operationId];
  return found && "action" in found ? [{ operationId, method, ...found }] : [];
});
const entries = async () => (await flotilla.audit.list({ limit: 1_000 })).entries;

describe("acts over HTTP", () => {
  test("are all routes that change something and need an operator or an administrator", () => {
    expect(changing.map(({ operationId }) => operationId).toSorted()).toEqual(
      Object.keys(routes).toSorted(),
    );
    // What has no route is done on the store: by `flotilla tasks prune`, and by a retry of a run's id.
    // Sign-ins are made by a page, and every caller may end its own.
    const isOther = (action: string) => /^(?:sessions|sign-ins)\./.test(action);
    const elsewhere = ["audit.full", "tasks.prune", "runs.retry", ...actions.filter(isOther)];
    const reached = acting.map(({ action }) => action as string);
    expect([...reached, ...elsewhere].toSorted()).toEqual(actions.toSorted());
  });

  test.each(acting)("$operationId leaves one entry that says who it was", async (each) => {
    const { method, path, body, action, arrange } = each;
    if (arrange) await inHandler(arrange);
    const to = pathTo(path);
    const answer = await app.send(method.toUpperCase(), to, body, asWeb);
    expect(answer.status).toBeLessThan(300);
    const found = await entries();
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ action, actor: "key/web", keyName: "web", user: "zoe" });
  });

  test.each(acting)("$operationId sent twice with one id is one act", async (each) => {
    const { method, path, body, arrange } = each;
    if (arrange) await inHandler(arrange);
    const to = pathTo(path);
    const headers = { ...asWeb, "Flotilla-Action": "0f6a1b2c" };
    const first = await app.send(method.toUpperCase(), to, body, headers);
    const second = await app.send(method.toUpperCase(), to, body, headers);
    expect(second.status).toBe(each.shownOnce ? 409 : first.status);
    expect(each.shownOnce ? first : second).toEqual(first);
    expect(await entries()).toMatchObject([{ actId: "0f6a1b2c" }]);
  });

  test.each(acting)("$operationId of a key that may not leaves none", async (each) => {
    const { method, path, body, arrange } = each;
    if (arrange) await inHandler(arrange);
    const to = pathTo(path);
    const headers = { Authorization: `Bearer ${usersKey}` };
    const { status } = await app.send(method.toUpperCase(), to, body, headers);
    expect(status).toBe(403);
    expect(await entries()).toEqual([]);
  });

  test("with an id that is no id, or another act's, are refused", async () => {
    const cancel = (actId: string, id = "pending") =>
      app.post(`/v1/tasks/${id}/cancel`, undefined, { ...asWeb, "Flotilla-Action": actId });
    expect(await cancel("a b")).toMatchObject({ status: 400 });
    expect(await cancel("x".repeat(201))).toMatchObject({ status: 400 });
    expect(await cancel("one")).toMatchObject({ status: 200 });
    expect(await cancel("one", "aside")).toMatchObject({ status: 409 });
    expect(await entries()).toHaveLength(1);
  });

  test("cancel a run at once that was set aside, since no pod can run its finalizers", async () => {
    expect(await app.post("/v1/runs/run-aside/cancel", undefined, asWeb)).toEqual({
      status: 200,
      body: { status: "cancelled" },
    });
    expect(await entries()).toMatchObject([
      { action: "runs.cancel", before: { status: "pending" }, after: { status: "cancelled" } },
    ]);
  });

  test("of the same name on something else, or on others, aren't the same act", async () => {
    const headers = { ...asWeb, "Flotilla-Action": "one" };
    await inHandler(() => flotilla.schedules.put("mail", nightly));
    expect(await app.post("/v1/pause", { name: "mail" }, headers)).toMatchObject({ status: 200 });
    expect(await app.post("/v1/schedules/mail/pause", undefined, headers)).toMatchObject({
      status: 409,
    });
    const other = { ...asWeb, "Flotilla-Action": "two" };
    const discard = (name: string) => app.post("/v1/dlq/discard", { name }, other);
    expect(await discard("mail")).toMatchObject({ status: 200 });
    expect(await discard("other")).toMatchObject({ status: 409 });
    expect(await discard("mail")).toMatchObject({ status: 200 });
    expect(await entries()).toHaveLength(2);
  });

  test("are a program's on this machine where there are no keys", async () => {
    const local = appHarness(flotilla);
    await local.post("/v1/tasks/pending/cancel");
    expect(await entries()).toMatchObject([{ actor: "local", kind: "local", keyName: null }]);
  });
});

const reading = "reads";
const starting = "sends work to the fleet, and changes nothing that is there";
const ofUsers = "is what a program does with the sessions of its users";
const ofProcess = "concerns this process alone";
const service = Object.fromEntries(
  ["create", "send", "upload", "toolResult", "signal", "bring", "regenerate", "stop", "read"]
    .concat(["wake", "cancelWake", "fireWake", "fork", "edit", "presence"])
    .concat(["setMetadata", "changeMembers", "compact", "archive", "unarchive", "remove"])
    .map((name) => [name, ofUsers]),
);
const reads = (...names: string[]) => Object.fromEntries(names.map((name) => [name, reading]));

/** What a program may call, with its act, or why it is none. */
const calls: Record<string, Record<string, string>> = {
  "": {
    ...reads("waitFor", "approvals", "machine", "pods", "sessionCounts", "ping", "changes"),
    enqueue: starting,
    enqueueMany: starting,
    enqueueEach: starting,
    enqueueGraph: starting,
    drainPod: "pods.drain",
    undrainPod: "pods.undrain",
    close: ofProcess,
  },
  tasks: {
    ...reads("noWorker", "get", "events", "steps", "links", "list", "stats", "waitFor"),
    ...reads("settled", "states", "depth", "paused", "why"),
    enqueue: starting,
    enqueueMany: starting,
    enqueueEach: starting,
    enqueueGraph: starting,
    pause: "names.pause",
    resume: "names.resume",
    cancel: "tasks.cancel",
    retry: "tasks.retry",
    resumeTask: "tasks.resume",
    signal: "tasks.signal",
    prune: "tasks.prune",
  },
  "tasks.files": {
    ...reads("ofTask", "read", "stream"),
    link: starting,
    store: starting,
    take: starting,
    takeResult: ofProcess,
  },
  "tasks.limits": { ...reads("get", "list", "tenants"), set: "limits.set" },
  files: {
    ...reads("check", "find", "grant", "read", "storageAt", "uploadsOf"),
    keep: ofUsers,
    upload: ofUsers,
    claimUploads: ofProcess,
  },
  "files.settings": {},
  "files.ofTasks": { ...reads("find", "read", "storageAt"), keep: starting, upload: starting },
  "files.ofTasks.settings": {},
  "files.uploads": { ...reads("find", "read", "storageAt"), keep: starting, upload: starting },
  "files.uploads.settings": {},
  deadLetters: {
    ...reads("groups", "list", "count", "redrives", "getRedrive", "followRedrive"),
    redrive: "redrives.start",
    cancelRedrive: "redrives.cancel",
    discard: "tasks.discard",
    resolve: "failures.resolve",
    ignore: "failures.ignore",
    reopen: "failures.reopen",
  },
  bulk: {
    ...reads("preview", "list", "get", "outcomes", "follow"),
    start: "bulk.start",
    stop: "bulk.stop",
  },
  runs: {
    ...reads("get", "list", "wait", "signals", "history", "counts", "doing", "stuck"),
    start: starting,
    cancel: "runs.cancel",
    signal: "runs.signal",
    resume: "runs.resume",
  },
  schedules: {
    ...reads("get", "list", "upcoming", "firings"),
    put: "schedules.put",
    pause: "schedules.pause",
    resume: "schedules.resume",
    fire: "schedules.fire",
    remove: "schedules.remove",
  },
  throttles: {
    ...reads("list", "get", "holders", "events"),
    pin: "throttles.pin",
    unpin: "throttles.unpin",
  },
  agents: {
    ...reads("get", "list"),
    create: "agents.create",
    replace: "agents.replace",
    remove: "agents.remove",
  },
  keys: {
    ...reads("list"),
    create: "keys.create",
    revoke: "keys.revoke",
    rotate: "keys.rotate",
  },
  tokens: { ...reads("revocations"), revoke: "tokens.revoke" },
  signIns: { ...reads("list"), create: "sign-ins.create", end: "sign-ins.end" },
  credentials: {
    ...reads("keyOf", "signInOf", "refusalOf", "watch", "ready"),
    useSignIn: ofProcess,
    close: ofProcess,
  },
  quotas: { ...reads("list", "of"), announce: ofProcess, leave: ofProcess },
  audit: reads("list"),
  pages: {
    ...reads("task", "taskStates", "tasks", "links", "depth", "paused", "limits", "run", "doing"),
    ...reads(
      "flows",
      "throttle",
      "throttles",
      "schedules",
      "bulks",
      "bulkPreview",
      "redrives",
      "audit",
      "pods",
    ),
    ...reads("fleet", "podCounts", "throttleSummaries", "newestTasks"),
    ...reads("approvals", "sessions", "sessionCounts", "sessionOwner"),
  },
  series: reads("read", "subjects", "totals"),
  sessions: { ...reads("open", "list", "inbox"), create: ofUsers },
  sessionService: {
    ...service,
    ...reads("get", "list", "entries", "turns", "started", "isStored", "join", "inbox"),
    ...reads("wakes", "forks"),
  },
};

/** The functions of an object, and those of the objects in it, by where they are. */
function functionsIn(on: object, at = ""): Record<string, string[]> {
  const found: Record<string, string[]> = { [at]: [] };
  for (const [name, value] of Object.entries(on) as [string, unknown][]) {
    if (typeof value === "function") found[at]!.push(name);
    else if (typeof value === "object" && value !== null)
      Object.assign(found, functionsIn(value, at === "" ? name : `${at}.${name}`));
  }
  return found;
}

describe("acts of programs", () => {
  test("are all that `flotilla.*` can do to the fleet, and each other call says why it is none", () => {
    const found = functionsIn(flotilla);
    const sorted = (lists: Record<string, readonly string[]>) =>
      Object.fromEntries(
        Object.entries(lists)
          .toSorted(([one], [other]) => (one < other ? -1 : 1))
          .map(([at, names]) => [at, names.toSorted()]),
      );
    const listed = Object.entries(calls).map(([at, names]) => [at, Object.keys(names)] as const);
    expect(sorted(found)).toEqual(sorted(Object.fromEntries(listed)));
    // A retry of a run's id leaves an act on a run, and acts on sessions come through a server.
    const others = ["audit.full", "runs.retry"];
    const left = actions.filter((each) => !each.startsWith("sessions.") && !others.includes(each));
    const named = Object.values(calls).flatMap((names) => Object.values(names));
    expect(left.filter((action) => !named.includes(action))).toEqual([]);
    const reasons = [reading, starting, ofUsers, ofProcess];
    const acted = named.filter((each) => !reasons.includes(each));
    expect(acted.toSorted()).toEqual(left.toSorted());
  });

  test("leave entries outside of handlers, signals among them, and none in handlers", async () => {
    await flotilla.tasks.signal("pending", "paid");
    await flotilla.runs.signal("run", "approved");
    await inHandler(() => flotilla.tasks.signal("pending", "paid again"));
    await inHandler(() => flotilla.runs.signal("run", "approved"));
    expect(await entries()).toMatchObject([
      { action: "runs.signal", actor: "program" },
      { action: "tasks.signal", actor: "program" },
    ]);
  });
});

describe("the audit over HTTP", () => {
  test("is read page by page, by actor, action, subject and time", async () => {
    await app.post("/v1/tasks/pending/cancel", undefined, asWeb);
    await app.post("/v1/pause", { name: "mail", reason: "repairs" }, asWeb);
    const read = async (query = "") => (await app.get(`/v1/audit${query}`, asWeb)).body;
    const first = await read("?limit=1");
    expect(first.entries).toMatchObject([{ action: "names.pause", reason: "repairs" }]);
    const second = await read(`?limit=1&cursor=${first.next}`);
    expect(second).toMatchObject({ entries: [{ action: "tasks.cancel" }], next: null });
    const count = async (query: string) => (await read(query)).entries.length;
    expect(await count("?actor=key/web")).toBe(2);
    expect(await count("?actor=key/chat")).toBe(0);
    expect(await count("?action=tasks.cancel")).toBe(1);
    expect(await count("?subject=mail")).toBe(1);
    expect(await count(`?untilMs=${second.entries[0].atMs - 1}`)).toBe(0);
    expect(await count(`?sinceMs=${second.entries[0].atMs}`)).toBe(2);
  });

  test("is for administrators, takes no other query, and no route changes it", async () => {
    const chat = { Authorization: `Bearer ${usersKey}` };
    expect(await app.get("/v1/audit", chat)).toMatchObject({ status: 403 });
    expect(await app.get("/v1/audit")).toMatchObject({ status: 401 });
    for (const query of ["?who=zoe", "?limit=0", "?cursor=x", "?sinceMs=yesterday"]) {
      expect(await app.get(`/v1/audit${query}`, asWeb)).toMatchObject({ status: 400 });
    }
    for (const method of ["POST", "PUT", "DELETE", "PATCH"]) {
      expect(await app.send(method, "/v1/audit", {}, asWeb)).toMatchObject({ status: 404 });
    }
    const written = allSpecs.filter(
      ({ path, method }) => path.includes("audit") && method !== "get",
    );
    expect(written).toEqual([]);
  });
});
