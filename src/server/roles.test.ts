import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ClientFrame } from "../protocol/frames.ts";
import { type Role, roles, verbs, verbsOfRole } from "../protocol/verbs.ts";
import { type RouteSpec, spec } from "./api/schema.ts";
import { dial, startTestServer, textMessage } from "./contract/test-server.ts";
import { allSpecs } from "./openapi.ts";
import { frameAccess } from "./socket/commands.ts";

/** The callers of the table. */
const callers = {
  none: undefined,
  viewer: { role: "viewer" },
  "viewer with payloads": { role: "viewer", verbs: ["payloads:read"] },
  operator: { role: "operator" },
  admin: { role: "admin" },
  "tenant's viewer": { role: "viewer", tenant: "acme" },
  "tenant's operator": { role: "operator", tenant: "acme" },
} as const;
type CallerName = keyof typeof callers;
const callerNames = Object.keys(callers) as CallerName[];

const viewers: readonly CallerName[] = ["viewer", "viewer with payloads", "operator", "admin"];
const operators: readonly CallerName[] = ["operator", "admin"];

/** What lets in which callers. Of a user's own sessions a role says nothing, unless it is `admin`. */
const allowed = {
  open: callerNames,
  read: [...viewers, "tenant's viewer", "tenant's operator"],
  "read of all": viewers,
  operate: [...operators, "tenant's operator"],
  "operate all": operators,
  admin: ["admin"],
  "own sessions": ["admin"],
} as const satisfies Record<string, readonly CallerName[]>;
type Level = keyof typeof allowed;

/** Every route by its operation, and what lets callers in. */
const routes: Record<string, Level> = {
  enqueueTask: "admin",
  enqueueTasks: "admin",
  enqueueGraph: "admin",
  listTasks: "read",
  getTask: "read",
  getTaskEvents: "read",
  getTaskSteps: "read",
  getWhy: "read",
  cancelTask: "operate",
  signalTask: "operate",
  resumeTask: "operate",
  retryTask: "operate",
  startRun: "admin",
  listRuns: "read",
  getRun: "read",
  getRunHistory: "read",
  getRunSignals: "read",
  signalRun: "operate",
  cancelRun: "operate",
  resumeRun: "operate",
  listFlows: "read of all",
  getFlow: "read of all",
  getMachine: "read of all",
  listSchedules: "read of all",
  getSchedule: "read of all",
  listFirings: "read of all",
  putSchedule: "admin",
  removeSchedule: "admin",
  pauseSchedule: "operate all",
  resumeSchedule: "operate all",
  fireSchedule: "operate all",
  listErrorGroups: "read",
  resolveErrorGroup: "operate all",
  ignoreErrorGroup: "operate all",
  reopenErrorGroup: "operate all",
  listDeadLetters: "read",
  discardDeadLetters: "admin",
  startRedrive: "operate",
  listRedrives: "read",
  getRedrive: "read",
  cancelRedrive: "operate",
  previewBulk: "read",
  startBulk: "operate",
  listBulks: "read",
  getBulk: "read",
  getBulkOutcomes: "read",
  stopBulk: "operate",
  listPauses: "read of all",
  pause: "operate all",
  resume: "operate all",
  listLimits: "read of all",
  setLimit: "admin",
  listTenants: "read of all",
  listThrottles: "read of all",
  getThrottle: "read of all",
  listPermitHolders: "read of all",
  listThrottleEvents: "read of all",
  pinThrottle: "admin",
  unpinThrottle: "admin",
  listAgents: "read",
  createAgent: "admin",
  getAgent: "read",
  replaceAgent: "admin",
  removeAgent: "admin",
  listApprovals: "read",
  listAudit: "admin",
  listQuotas: "read",
  listKeys: "admin",
  createKey: "admin",
  revokeKey: "admin",
  rotateKey: "admin",
  listRevocations: "admin",
  revokeTokens: "admin",
  listSignIns: "read",
  endSignIn: "read",
  createSession: "own sessions",
  editMessage: "own sessions",
  forkSession: "own sessions",
  listForks: "read",
  setWake: "own sessions",
  listWakes: "read",
  cancelWake: "operate",
  uploadFile: "own sessions",
  readFile: "own sessions",
  openFiles: "own sessions",
  readOpenedFile: "open",
  uploadTaskFile: "admin",
  readTaskFile: "read",
  listSessions: "read",
  getSession: "read",
  deleteSession: "own sessions",
  setSessionMetadata: "own sessions",
  changeSessionMembers: "own sessions",
  archiveSession: "operate",
  unarchiveSession: "operate",
  compactSession: "operate",
  listMessages: "read",
  sendMessage: "own sessions",
  sendToolResults: "operate",
  signalSession: "operate",
  regenerateMessage: "operate",
  stopTurn: "operate",
  markRead: "own sessions",
  exportSession: "read",
  followSession: "read",
  readSessionStream: "read",
  runAgent: "own sessions",
  getInbox: "own sessions",
  followInbox: "own sessions",
  issueTicket: "read",
  listTurns: "read",
  listSessionTasks: "read",
  getSessionOwner: "read of all",
  getHome: "open",
  getDocs: "read",
  watchTopics: "read",
  deliverToHook: "open",
  listChanges: "read",
  listPods: "read of all",
  getFleet: "read of all",
  drainPod: "operate all",
  undrainPod: "operate all",
  getStats: "read of all",
  getDepth: "read of all",
  getSeries: "read of all",
  listSubjects: "read of all",
  getOpenApi: "read",
  getMetrics: "read of all",
  getLive: "open",
  getReady: "open",
};

const session = "none";
/** Every frame, and what lets callers in. A connection needs credentials in any case. */
const frames: {
  [Type in ClientFrame["type"]]: [Level | "any caller", Omit<ClientFrame, "type" | "ref">];
} = {
  join: ["read", { session, lastSeq: 0 }],
  leave: ["any caller", { session }],
  send: ["own sessions", { session, message: textMessage("hello") }],
  tool_result: [
    "operate",
    { session, messageId: "m", results: [{ toolCallId: "c", approved: true }] },
  ],
  signal: ["operate", { session, name: "approve" }],
  regenerate: ["operate", { session }],
  stop: ["operate", { session }],
  read: ["own sessions", { session, seq: 0 }],
  presence: ["own sessions", { session, typing: true }],
  presence_leave: ["any caller", { session }],
  inbox: ["own sessions", {}],
  inbox_leave: ["any caller", {}],
  watch: ["read", { topics: ["failures"] }],
  ping: ["any caller", {}],
  token: ["any caller", { token: "x" }],
};

const keyOf = (name: CallerName) => `a-key-of-one-caller:${name.replaceAll(/\W/g, "-")}`;
const writingOperator = "a-key-of-an-operator-that-writes";
let server: Awaited<ReturnType<typeof startTestServer>>;
beforeAll(async () => {
  const ofTable = callerNames.flatMap((name) => {
    const caller = callers[name];
    return caller ? [{ key: keyOf(name), ...caller }] : [];
  });
  const writes = ["sessions:read", "sessions:write"] as const;
  const writing = { key: writingOperator, role: "operator", verbs: writes } as const;
  server = await startTestServer({ server: { apiKeys: [...ofTable, writing] } });
});
afterAll(() => server[Symbol.asyncDispose]());

const pathOf = ({ path }: RouteSpec) => path.replaceAll(/\{\w+\}/g, "none");
const headersOf = (name: CallerName) => ({
  "Content-Type": "application/json",
  ...(callers[name] && { Authorization: `Bearer ${keyOf(name)}`, "Flotilla-User": "ada" }),
});
/** The answer of a real server, without the rest of a stream that never ends. */
const ask = async (name: CallerName, method: string, path: string) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: headersOf(name),
    ...(method !== "GET" && method !== "HEAD" && { body: "{}" }),
  });
  const { status } = answer;
  const isRefused = status === 401 || status === 403;
  const text = isRefused && method !== "HEAD" ? await answer.text() : "";
  if (!isRefused) await answer.body?.cancel();
  return { status, isRefused, text };
};
const expected = (level: Level) =>
  Object.fromEntries(
    callerNames.map((name) => [
      name,
      (allowed[level] as readonly CallerName[]).includes(name)
        ? "let in"
        : name === "none"
          ? "401"
          : "403",
    ]),
  );

test("a route that names neither a verb nor that it is open doesn't compile", () => {
  const route = {
    method: "get",
    path: "/v1/new",
    operationId: "getNew",
    tag: "fleet",
    summary: "Something new.",
    answers: {},
    errors: [],
  } as const;
  // @ts-expect-error It needs `verb`, or `open`.
  const unchecked = spec(route);
  expect(unchecked).toBe(route);
  expect([
    spec({ ...route, verb: "fleet:read" }).verb,
    spec({ ...route, open: true }).open,
  ]).toEqual(["fleet:read", true]);
});

describe("the table of routes and callers", () => {
  test("has every route, and none that isn't there", () => {
    const served = allSpecs.map(({ operationId }) => operationId);
    expect(Object.keys(routes).toSorted()).toEqual(served.toSorted());
  });

  test.each(allSpecs.map((spec) => [spec.operationId, spec] as const))(
    "holds for %s",
    async (operationId, spec) => {
      const level = routes[operationId]!;
      const answers = await Promise.all(
        callerNames.map((name) => ask(name, spec.method.toUpperCase(), pathOf(spec))),
      );
      const found = answers.map(({ status, isRefused }, at) => [
        callerNames[at],
        isRefused ? String(status) : "let in",
      ]);
      // A refusal says what is missing.
      const refusals = answers.filter(({ status }) => status === 403).map(({ text }) => text);
      const clear = /it needs `[a-z:]+`|this is about all tenants/;
      expect(refusals.filter((text) => !clear.test(text))).toEqual([]);
      expect(Object.fromEntries(found)).toEqual(expected(level));
    },
  );

  test.each(allSpecs.map((spec) => [spec.operationId, spec] as const))(
    "gives no more of %s by HEAD, doubled slashes or another spelling of its path",
    async (operationId, spec) => {
      const path = pathOf(spec);
      const spellings = [
        `/${path}`,
        path.replaceAll("/", "//"),
        `${path}/`,
        path.replaceAll(/[a-z]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
        path.replaceAll(/(?<=.)\//g, "%2f"),
        path.toUpperCase(),
        `${path};x=1`,
        `${path}%00`,
      ];
      const refused = callerNames.filter(
        (name) => !(allowed[routes[operationId]!] as readonly CallerName[]).includes(name),
      );
      const method = spec.method.toUpperCase();
      const tries = [
        ...spellings.map((spelling) => [method, spelling] as const),
        ...(method === "GET" ? [["HEAD", path] as const] : []),
      ];
      for (const name of refused) {
        for (const [by, spelling] of tries) {
          const { status } = await ask(name, by, spelling);
          expect([name, by, spelling, status]).toEqual([
            name,
            by,
            spelling,
            expect.toBeOneOf([400, 401, 403, 404]),
          ]);
        }
      }
    },
  );

  test("a request that was let in is refused as soon as another caller sends it", async () => {
    await server.flotilla.tasks.pause("mail");
    /** The very same request, with the id that makes it one act. */
    const resume = (name: CallerName) =>
      fetch(`${server.url}/v1/resume`, {
        method: "POST",
        headers: { ...headersOf(name), "Flotilla-Action": "0f6a1b2c" },
        body: JSON.stringify({ name: "mail" }),
      });
    expect((await resume("viewer")).status).toBe(403);
    const paused = async () => (await server.flotilla.tasks.paused()).map(({ name }) => name);
    expect(await paused()).toContain("mail");
    expect((await resume("operator")).status).toBe(200);
    for (const name of ["viewer", "tenant's operator", "none"] as const) {
      const { status } = await resume(name);
      expect([name, status]).toEqual([name, name === "none" ? 401 : 403]);
    }
    // The id is the caller's own: what another has done with it is no answer to a later caller.
    await server.flotilla.tasks.pause("mail");
    expect((await resume("admin")).status).toBe(200);
    expect(await paused()).not.toContain("mail");
    const { entries } = await server.flotilla.audit.list({
      subject: "mail",
      action: "names.resume",
    });
    expect(entries.map(({ role, actId }) => [role, actId])).toEqual([
      ["admin", "0f6a1b2c"],
      ["operator", "0f6a1b2c"],
    ]);
  });
});

describe("the table of frames and callers", () => {
  test("has every frame", () => {
    expect(Object.keys(frames).toSorted()).toEqual(Object.keys(frameAccess).toSorted());
  });

  test.each(callerNames.filter((name) => name !== "none"))("holds for %s", async (name) => {
    const client = await dial(server.socketUrl, { headers: headersOf(name) });
    const answers: Record<string, string> = {};
    const wanted: Record<string, string> = {};
    for (const [type, [level, frame]] of Object.entries(frames)) {
      const answer = await client.request({ type, ...frame });
      answers[type] = answer.code === "forbidden" ? "403" : "let in";
      wanted[type] = level === "any caller" ? "let in" : expected(level)[name]!;
    }
    client.close();
    expect(answers).toEqual(wanted);
  });

  test("holds for a caller without credentials, which gets no connection", async () => {
    await expect(dial(server.socketUrl)).rejects.toMatchObject({ status: 401 });
  });
});

describe("an operator in sessions", () => {
  test("approves calls of any session, and makes up no outputs of them", async () => {
    const { sessionId } = await server.sessions.create("default", { users: ["bob"] });
    const send = (results: object[]) =>
      fetch(`${server.url}/v1/sessions/${sessionId}/tool-results`, {
        method: "POST",
        headers: headersOf("operator"),
        body: JSON.stringify({ messageId: "m", results }),
      });
    const approved = await send([{ toolCallId: "c", approved: true }]);
    expect(approved.status).not.toBe(403);
    const both = [
      { toolCallId: "c", approved: true },
      { toolCallId: "d", output: 7 },
    ];
    for (const results of [both, [{ toolCallId: "c", errorText: "no" }]]) {
      const refused = await send(results);
      expect(refused.status).toBe(403);
      expect(await refused.text()).toContain("`sessions:write`");
    }
    const client = await dial(server.socketUrl, { headers: headersOf("operator") });
    const frame = { type: "tool_result", session: sessionId, messageId: "m", results: both };
    expect(await client.request(frame)).toMatchObject({ type: "error", code: "forbidden" });
    client.close();
  });

  test("that also writes in sessions of its own makes up no outputs in those of others", async () => {
    const { sessionId } = await server.sessions.create("default", { users: ["bob"] });
    const headers = { ...headersOf("operator"), Authorization: `Bearer ${writingOperator}` };
    const frame = {
      messageId: "m",
      results: [{ toolCallId: "c", output: 7 }],
    };
    const sent = await fetch(`${server.url}/v1/sessions/${sessionId}/tool-results`, {
      method: "POST",
      headers,
      body: JSON.stringify(frame),
    });
    const noSession = expect.stringContaining(`there is no session ${sessionId}`);
    expect([sent.status, await sent.text()]).toEqual([404, noSession]);
    const client = await dial(server.socketUrl, { headers });
    const answers = await Promise.all([
      client.request({ type: "tool_result", session: sessionId, ...frame }),
      client.request({ type: "send", session: sessionId, message: textMessage("hi") }),
    ]);
    expect(answers).toMatchObject([{ message: noSession }, { message: noSession }]);
    expect(await client.request({ type: "stop", session: sessionId })).toMatchObject({
      type: "ack",
    });
    client.close();
  });

  test("sees sessions that it isn't a member of, as a viewer does, and writes nothing there", async () => {
    const { sessionId } = await server.sessions.create("default", { users: ["bob"] });
    const at = `/v1/sessions/${sessionId}`;
    for (const name of ["viewer", "operator"] as const) {
      for (const path of [
        at,
        `${at}/messages`,
        `${at}/turns`,
        `${at}/export`,
        `${at}/events`,
        `/v1/streams${at.slice(3)}`,
      ])
        expect([path, (await ask(name, "GET", path)).status]).toEqual([path, 200]);
      const listed = await fetch(`${server.url}/v1/sessions`, { headers: headersOf(name) });
      expect(await listed.text()).toContain(sessionId);
      const client = await dial(server.socketUrl, { headers: headersOf(name) });
      const joined = await client.request({ type: "join", session: sessionId, lastSeq: 0 });
      expect(joined).toMatchObject({ type: "joined" });
      client.close();
    }
    expect((await ask("viewer", "POST", `${at}/archive`)).status).toBe(403);
    expect((await server.sessions.get("default", sessionId)).status).toBe("active");
    expect((await ask("operator", "POST", `${at}/archive`)).status).toBe(200);
    expect((await ask("operator", "DELETE", at)).status).toBe(403);
  });

  test("of a tenant finds no session of another", async () => {
    const { sessionId } = await server.sessions.create("other", { users: ["bob"] });
    const at = `/v1/sessions/${sessionId}`;
    for (const path of [
      at,
      `${at}/messages`,
      `${at}/turns`,
      `${at}/export`,
      `${at}/events`,
      `/v1/streams${at.slice(3)}`,
    ])
      expect((await ask("tenant's operator", "GET", path)).status).toBe(404);
    expect((await ask("tenant's operator", "POST", `${at}/archive`)).status).toBe(404);
    const elsewhere = await fetch(`${server.url}${at}`, {
      headers: { ...headersOf("tenant's operator"), "Flotilla-Tenant": "other" },
    });
    expect(elsewhere.status).toBe(403);
  });
});

describe("roles", () => {
  test("contain each other, and only an administrator sees payloads without a grant", () => {
    const [viewer, operator, admin] = roles.map((role: Role) => new Set(verbsOfRole[role]));
    expect([...viewer!].filter((verb) => !operator!.has(verb))).toEqual([]);
    expect([...admin!]).toEqual([...verbs]);
    expect([viewer!.has("payloads:read"), operator!.has("payloads:read")]).toEqual([false, false]);
    expect([viewer!.has("fleet:operate"), operator!.has("admin")]).toEqual([false, false]);
  });

  test("can ask for nothing by what is in payloads or in the text of errors", () => {
    // A route that filters, sorts or counts by these must ask for `payloads:read` first.
    const plain =
      "after agent at before cursor epoch exact flow fromStart group ids incarnation key lastMessageId lastSeq " +
      "limit name parent pod run scope session setAside sinceMs state status tenant topics untilMs user version " +
      // Of the audit, of series and of changes, which hold no payloads.
      "action actor subject from kind span step to names kinds follow offset live " +
      // Of forks, and of files that are uploaded.
      "atSeq filename size sha256";
    const asked = allSpecs.flatMap(({ query }) => Object.keys(query?.shape ?? {}));
    const others = [...new Set(asked)].filter((name) => !plain.split(" ").includes(name));
    // They do: see "finds tasks by a value of their payload, for callers that may see payloads", and
    // "aren't found by callers that see shapes alone, nor by what no caller is shown".
    expect(others).toEqual(["payload", "metadata"]);
  });
});
