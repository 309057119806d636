import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type MovableClock, movableClock, until } from "../../base/contract/movable-clock.ts";
import { silentLogger } from "../../base/log.ts";
import { createClient } from "../../client/client.ts";
import { connect } from "../../runtime/connect.ts";
import type { QuotaConfig } from "../../runtime/quota-config.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { createMetrics } from "../metrics/metrics.ts";
import { serve } from "../serve.ts";
import { dial, type DialOptions, keysRead, textMessage } from "./test-server.ts";

type Place = { readonly store: string; readonly remove: () => Promise<void> };
// oxlint-disable-next-line typescript/no-explicit-any
type Answer = { status: number; headers: Headers; body: any };

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const verbs = "sessions:read sessions:write sessions:create sessions:manage fleet:read".split(" ");

/** Its answers end where they are stopped. */
const held = agent("held", { attempts: 1 }, ({ signal }) => {
  return new Promise<string>((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason as Error)),
  );
});
const wordy = agent("wordy", () => "word ".repeat(100));

/** A pod and a server in front of it, as a process of a fleet has them. */
async function startMember(store: string, quotas: QuotaConfig, clock: MovableClock) {
  const log = silentLogger;
  const pod = await startPod({
    store,
    use: [held, wordy],
    log,
    dataDir: false,
    deadAfterMs: 60_000,
    shutdownMs: 0,
    server: { quotas },
  });
  const flotilla = connect(store);
  const metrics = createMetrics();
  const config = { host: "127.0.0.1", port: 0, tokens: { secret }, apiKeys: [key], quotas };
  const server = await serve({
    flotilla,
    sessions: pod.sessionService!,
    metrics,
    isStopping: () => false,
    clock,
    log,
    server: config,
  });
  await keysRead(flotilla, config);
  return {
    flotilla,
    pod,
    metrics,
    url: server.url,
    async close() {
      await server.close();
      await flotilla.close();
      await pod.stop();
    },
  };
}
type Member = Awaited<ReturnType<typeof startMember>>;

const tokenOf = (tenant: string) =>
  new SignJWT({ sub: "ada", tenant, verbs })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));

async function ask(
  { url }: Member,
  bearer: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${bearer}`,
      "Content-Type": "application/json",
      ...(bearer === key && { "Flotilla-Tenant": "acme", "Flotilla-User": "ada" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  const json = text.startsWith("{") ? JSON.parse(text) : text;
  return { status: answer.status, headers: answer.headers, body: json };
}

/** Quotas of tenants on a fleet of two pods and two servers, on one store. */
export function quotasContract(name: string, open: () => Promise<Place>): void {
  describe(`quotas of tenants on ${name}`, () => {
    let place: Place;
    const clock = movableClock(Date.now());
    let tokens = { acme: "", other: "" };
    beforeAll(async () => {
      place = await open();
      tokens = { acme: await tokenOf("acme"), other: await tokenOf("other") };
    });
    afterAll(() => place.remove());

    /** Runs with a fleet of its own on the store, whose tenants have no sessions. */
    const withFleet = async (
      quotas: QuotaConfig,
      work: (one: Member, other: Member) => Promise<void>,
    ): Promise<void> => {
      const fleet: Member[] = [];
      try {
        for (let started = 0; started < 2; started++)
          fleet.push(await startMember(place.store, quotas, clock));
        for (const tenant of ["acme", "other"]) await removeAll(fleet[0]!, tenant);
        for (const member of fleet) {
          await inTime("both servers", async () => {
            const { body } = await ask(member, key, "GET", "/v1/quotas?tenant=acme");
            return body.servers === 2;
          });
        }
        await work(fleet[0]!, fleet[1]!);
      } finally {
        for (const member of fleet.toReversed()) await member.close();
      }
    };
    /** Waits for what needs time to pass on the servers. */
    const inTime = (what: string, condition: () => Promise<boolean>) =>
      until(what, async () => {
        if (await condition()) return true;
        await clock.advance(300);
        return false;
      });
    const removeAll = async ({ pod, flotilla }: Member, tenant: string): Promise<void> => {
      for (;;) {
        const { sessions } = await flotilla.sessionService.list(tenant, { limit: 1_000 });
        if (sessions.length === 0) return;
        for (const { sessionId } of sessions) await pod.sessionService!.remove(tenant, sessionId);
      }
    };
    const create = (on: Member, bearer: string, more: object = {}) =>
      ask(on, bearer, "POST", "/v1/sessions", more);
    const made = async (on: Member, bearer: string, agents: string[] = []): Promise<string> => {
      const { status, body } = await create(on, bearer, { agents });
      expect(status).toBe(201);
      return body.sessionId as string;
    };
    const send = (on: Member, bearer: string, sessionId: string, text = "hi") =>
      ask(on, bearer, "POST", `/v1/sessions/${sessionId}/messages`, textMessage(text));
    const dialed = async ({ url }: Member, bearer: string, options: DialOptions = {}) =>
      dial(`${url.replace("http", "ws")}/v1/socket`, {
        headers: { Authorization: `Bearer ${bearer}` },
        ...options,
      });
    const usedBy = async (on: Member, tenant: string) =>
      (await on.flotilla.quotas.of([tenant]))[0]!;

    test("bound how many sessions there are: refused on every server, not to others, and counted after a restart", async () => {
      const quotas = { perTenant: { sessions: 2 } };
      let kept = "";
      await withFleet(quotas, async (one, other) => {
        kept = await made(one, tokens.acme);
        const second = await made(other, tokens.acme);
        for (const member of [one, other]) {
          const refused = await create(member, tokens.acme);
          expect(refused).toMatchObject({
            status: 429,
            body: {
              error: {
                code: "quota_exceeded",
                message:
                  "the tenant has 2 sessions, and its quota is 2: delete some that are no longer needed, or have `server.quotas` raised",
                details: { quota: "sessions", limit: 2, used: 2 },
              },
            },
          });
          expect(refused.headers.get("retry-after")).toBe("60");
        }
        expect((await create(one, tokens.acme, { sessionId: kept })).status).toBe(201);
        expect((await create(other, tokens.other)).status).toBe(201);
        // A program that looks after all tenants isn't bounded, but what it makes counts.
        const third = (await create(one, key)).body.sessionId;
        expect(await usedBy(other, "acme")).toMatchObject({ sessions: 3 });
        for (const sessionId of [second, third])
          await ask(other, tokens.acme, "DELETE", `/v1/sessions/${sessionId}`);
        await inTime("room", async () => (await create(one, tokens.acme)).status === 201);
        const { body } = await ask(one, tokens.acme, "GET", "/v1/quotas");
        expect(body).toMatchObject({
          tenants: [
            { tenant: "acme", used: { sessions: 2, turnsAtOnce: 0 }, limits: { sessions: 2 } },
          ],
          next: null,
        });
        const text = await one.metrics.registry.metrics();
        expect(text).toContain('flotilla_quota_refusals_total{quota="sessions"} ');
        expect(text).not.toContain('flotilla_quota_refusals_total{quota="sessions"} 0');
        expect(text).not.toContain("acme");
      });
      const again = await startMember(place.store, quotas, clock);
      try {
        expect((await create(again, tokens.acme)).status).toBe(429);
        expect((await create(again, tokens.acme, { sessionId: kept })).status).toBe(201);
      } finally {
        await again.close();
      }
    });

    test("refuse nothing of a burst that there is room for, whichever server it comes to", async () => {
      await withFleet({ perTenant: { sessions: 20 } }, async (one) => {
        const answers = await Promise.all(
          Array.from({ length: 8 }, () => create(one, tokens.acme)),
        );
        expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
      });
    });

    test("hold for sessions that two servers create at the same time, but for one", async () => {
      await withFleet({ perTenant: { sessions: 10 } }, async (one, other) => {
        const answers = await Promise.all(
          Array.from({ length: 40 }, (_, at) => create(at % 2 === 0 ? one : other, tokens.acme)),
        );
        expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201, 429]));
        const { sessions } = await usedBy(one, "acme");
        expect(sessions).toBe(answers.filter(({ status }) => status === 201).length);
        expect(sessions).toBeLessThanOrEqual(11);
        const oneMore = async () => (await create(one, tokens.acme)).status === 201;
        while ((await usedBy(one, "acme")).sessions < 10) await inTime("the rest", oneMore);
        expect((await create(one, tokens.acme)).status).toBe(429);
        expect((await create(other, tokens.acme)).status).toBe(429);
      });
    });

    test("bound turns at once: a message more is refused before it is stored, and goes through when one has ended", async () => {
      await withFleet({ perTenant: { turnsAtOnce: 2 } }, async (one, other) => {
        const sessions = [];
        for (const member of [one, other, one])
          sessions.push(await made(member, tokens.acme, ["held"]));
        const [first, second, third] = sessions as [string, string, string];
        expect((await send(one, tokens.acme, first)).status).toBe(201);
        expect((await send(other, tokens.acme, second)).status).toBe(201);
        for (const member of [one, other]) {
          const refused = await send(member, tokens.acme, third);
          expect(refused).toMatchObject({
            status: 429,
            body: {
              error: {
                code: "overloaded",
                message:
                  "2 turns of the tenant are under way, and its quota is 2 at once: send this again when one has ended, or have `server.quotas` raised",
                details: { quota: "turnsAtOnce", limit: 2, used: 2 },
              },
            },
          });
          expect(refused.headers.get("retry-after")).toBe("2");
        }
        const { body } = await ask(one, tokens.acme, "GET", `/v1/sessions/${third}`);
        expect(body).toMatchObject({ lastSeq: 0, state: { state: "idle" } });

        // The same on a socket; a session that is in a turn takes more, because that begins no other.
        const client = await dialed(one, tokens.acme);
        const frame = { type: "send", session: third, message: textMessage("hi") };
        expect(await client.request(frame)).toMatchObject({
          type: "error",
          code: "overloaded",
          details: { quota: "turnsAtOnce", limit: 2, used: 2 },
          retryAfterMs: 2_000,
        });
        expect(await client.request({ ...frame, session: first })).toMatchObject({ type: "ack" });
        client.close();
        const theirs = await made(other, tokens.other, ["held"]);
        expect((await send(one, tokens.other, theirs)).status).toBe(201);

        // A client waits by itself, and its message is stored once there is room.
        const patient = createClient({ url: one.url, token: tokens.acme });
        let sent: unknown;
        const sending = patient.session(third).send("when there is room");
        void sending.then((answer) => (sent = answer));
        await until("a held message", () => one.metrics.registry.metrics().then(hasRefusals));
        expect(sent).toBeUndefined();
        expect((await ask(other, tokens.acme, "POST", `/v1/sessions/${second}/stop`)).status).toBe(
          202,
        );
        await inTime("room for the message", async () => sent !== undefined);
        expect(sent).toMatchObject({ seq: 1 });
        patient.close();
        await until("the counts", async () => (await usedBy(one, "acme")).turnsAtOnce === 2);
      });
    });

    test("bound what is stored: answers count, and what would add to it is refused until some is deleted", async () => {
      await withFleet({ perTenant: { storedBytes: 3_000 } }, async (one, other) => {
        const sessionId = await made(one, tokens.acme, ["wordy"]);
        const first = textMessage("said once", "said-1");
        const say = () =>
          ask(one, tokens.acme, "POST", `/v1/sessions/${sessionId}/messages`, first);
        const said = await say();
        expect(said.status).toBe(201);
        await inTime("the refusal", async () => {
          const { status } = await send(other, tokens.acme, sessionId);
          expect([201, 429]).toContain(status);
          return status === 429;
        });
        const { storedBytes } = await usedBy(one, "acme");
        expect(storedBytes).toBeGreaterThanOrEqual(3_000);
        const refused = await send(one, tokens.acme, sessionId);
        expect(refused).toMatchObject({
          status: 429,
          body: {
            error: {
              code: "quota_exceeded",
              details: { quota: "storedBytes", limit: 3_000 },
            },
          },
        });
        expect(refused.body.error.message).toMatch(
          /^the sessions of the tenant store \d+ bytes, and its quota is 3000: delete some that are no longer needed, or have `server.quotas` raised$/,
        );
        expect(refused.headers.get("retry-after")).toBe("60");
        expect((await create(other, tokens.acme)).status).toBe(429);
        const client = await dialed(other, tokens.acme);
        const frame = { type: "send", session: sessionId, message: textMessage("hi") };
        expect(await client.request(frame)).toMatchObject({
          type: "error",
          code: "quota_exceeded",
          retryAfterMs: 60_000,
        });
        // What is there already adds nothing, and its sender may have missed the answer.
        expect(await say()).toMatchObject({ status: 200, body: { seq: said.body.seq } });
        expect(
          await client.request({ type: "send", session: sessionId, message: first }),
        ).toMatchObject({ type: "ack", seq: said.body.seq, duplicate: true });
        const again = { sessionId, agents: ["wordy"] };
        expect((await create(other, tokens.acme, again)).status).toBe(201);
        client.close();
        const theirs = await made(one, tokens.other, ["wordy"]);
        expect((await send(one, tokens.other, theirs)).status).toBe(201);
        await ask(one, tokens.acme, "DELETE", `/v1/sessions/${sessionId}`);
        await inTime("room", async () => (await create(other, tokens.acme)).status === 201);
      });
    });

    test("bound requests a minute, divided between the servers; frames and sockets count", async () => {
      const quotas = { tenants: { acme: { requestsPerMinute: 20 } } };
      await withFleet(quotas, async (one, other) => {
        const list = (on: Member, bearer: string) => ask(on, bearer, "GET", "/v1/sessions");
        const client = await dialed(one, tokens.acme);
        for (let sent = 0; sent < 4; sent++)
          expect((await list(one, tokens.acme)).status).toBe(200);
        const join = { type: "join", session: "none", lastSeq: 0 };
        for (let sent = 0; sent < 5; sent++)
          expect(await client.request(join)).toMatchObject({ code: "not_found" });
        expect(await client.request(join)).toMatchObject({
          type: "error",
          code: "overloaded",
          details: { quota: "requestsPerMinute", limit: 20, used: 20 },
          retryAfterMs: expect.any(Number),
        });
        // What keeps a connection up isn't bounded.
        expect(await client.request({ type: "ping" })).toMatchObject({ type: "pong" });
        const refused = await list(one, tokens.acme);
        expect(refused).toMatchObject({ status: 429, body: { error: { code: "overloaded" } } });
        expect(refused.body.error.message).toMatch(/its quota of 20 a minute: send this again in/);
        expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(30);
        await expect(dialed(one, tokens.acme)).rejects.toMatchObject({
          status: 429,
          code: "overloaded",
        });
        expect((await list(one, tokens.other)).status).toBe(200);
        expect((await ask(one, key, "GET", "/v1/sessions")).status).toBe(200);
        for (let sent = 0; sent < 10; sent++)
          expect((await list(other, tokens.acme)).status).toBe(200);
        expect((await list(other, tokens.acme)).status).toBe(429);
        client.close();
        await clock.advance(65_000);
        expect((await list(one, tokens.acme)).status).toBe(200);
      });
    });

    test("are shown to callers that look after the fleet, and of a tenant its own", async () => {
      const quotas = {
        perTenant: { requestsPerMinute: 1_000 },
        tenants: { acme: { sessions: 5 } },
      };
      await withFleet(quotas, async (one) => {
        await made(one, tokens.acme);
        await made(one, tokens.other);
        const all = await ask(one, key, "GET", "/v1/quotas?limit=100");
        const shown = all.body.tenants.filter(({ tenant }: { tenant: string }) =>
          ["acme", "other"].includes(tenant),
        );
        expect(shown).toMatchObject([
          { tenant: "acme", used: { sessions: 1 }, limits: { sessions: 5 } },
          {
            tenant: "other",
            used: { sessions: 1 },
            requestsHere: 1,
            limits: { requestsPerMinute: 1_000, sessions: null },
          },
        ]);
        const own = await ask(one, tokens.other, "GET", "/v1/quotas");
        expect(own.body.tenants.map(({ tenant }: { tenant: string }) => tenant)).toEqual(["other"]);
        expect((await ask(one, tokens.other, "GET", "/v1/quotas?tenant=acme")).status).toBe(403);
        const unknown = await ask(one, key, "GET", "/v1/quotas?tenant=unknown");
        expect(unknown.body.tenants).toMatchObject([{ tenant: "unknown", used: { sessions: 0 } }]);
      });
    });
  });
}

const hasRefusals = (text: string): boolean =>
  Number(/flotilla_quota_refusals_total\{quota="turnsAtOnce"\} (\d+)/.exec(text)?.[1]) >= 3;
