import { describe, expect, test } from "vitest";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import type { Credential, Credentials } from "../credentials.ts";
import { newKeyText } from "../key.ts";
import { systemRandom } from "../../base/random.ts";
import { controlled, openKeys, unnotified } from "./harness.ts";

const away = () => Promise.reject(new FlotillaError("store_unavailable", "gone"));

/** What servers on one store know of keys and revoked tokens. */
export function credentialsContract(kind: StoreKind): void {
  describe(`credentials on ${kind.name}`, () => {
    const harness = openKeys(kind);
    const make = (more = {}) => harness.keys.create({ name: "ci", role: "operator", ...more });
    const unknownKey = () => newKeyText(systemRandom);

    /** How a key is answered, letting time pass while it is. */
    const ask = async (server: Credentials, text: string): Promise<string> => {
      let outcome: string | undefined;
      const answer = async () => {
        try {
          outcome = (await server.keyOf(text)) ? "accepted" : "unknown";
        } catch (error) {
          outcome = (error as FlotillaError).code;
        }
      };
      void answer();
      await harness.until("an answer", () => outcome);
      return outcome!;
    };
    /** How a key is answered that the server knows: at once. */
    const askKnown = (server: Credentials, text: string): string => {
      try {
        const found = server.keyOf(text);
        if (!(found instanceof Promise)) return found ? "accepted" : "unknown";
        found.catch(() => {});
        return "waits";
      } catch (error) {
        return (error as FlotillaError).code;
      }
    };
    const ofKey = (keyId: string): Credential => ({ kind: "key", keyId });
    const ofToken = (more: object = {}): Credential => ({
      kind: "token",
      tenant: "acme",
      user: "ada",
      ...more,
    });

    test("accept a key of the store with what its role allows", async () => {
      const { key, text } = await make({ tenant: "acme", payloads: true });
      const server = await harness.serve();
      const found = await server.keyOf(text);
      expect(found).toMatchObject({
        keyId: key.keyId,
        name: "ci",
        role: "operator",
        tenant: "acme",
        payloads: true,
      });
      expect([found!.verbs.has("fleet:operate"), found!.verbs.has("payloads:read")]).toEqual([
        true,
        true,
      ]);
      expect(found!.verbs.has("admin")).toBe(false);
      expect(await ask(server, unknownKey())).toBe("unknown");
      expect([askKnown(server, "another-key"), askKnown(server, `${text}x`)]).toEqual([
        "unknown",
        "unknown",
      ]);
    });

    test("give a tenant's key no administrator's rights, whatever its row says, nor unknown roles any", async () => {
      const { key, text } = await make({ tenant: "acme" });
      const { key: other, text: otherText } = await make();
      const ofKeys = table("api_key");
      await harness.database.write([
        sql`update ${ofKeys} set role = 'admin' where key_id = ${key.keyId}`,
        sql`update ${ofKeys} set role = 'emperor' where key_id = ${other.keyId}`,
      ]);
      const server = await harness.serve();
      expect((await server.keyOf(text))!.verbs.has("admin")).toBe(false);
      expect((await server.keyOf(otherText))!.verbs.size).toBe(0);
    });

    test("refuse a key that was revoked elsewhere within a second, also where no notification comes", async () => {
      const { key, text } = await make();
      const server = await harness.serve(unnotified(harness.database));
      expect(askKnown(server, text)).toBe("accepted");
      await harness.keys.revoke(key.keyId);
      const passedMs = await harness.until(
        "the refusal",
        () => askKnown(server, text) !== "accepted",
      );
      expect(askKnown(server, text)).toBe("unauthorized");
      // Elsewhere the store answers in its own time, and this clock goes on meanwhile.
      expect(harness.store.clock ? passedMs : 0).toBeLessThanOrEqual(1_000);
    });

    test("refuse it on another connection to the store as well, with its open sockets", async () => {
      const other = (await harness.store.again?.()) ?? harness.database;
      const { key, text } = await make();
      const server = await harness.serve(other);
      const ended: string[] = [];
      server.watch(ofKey(key.keyId), ({ message }) => ended.push(message));
      expect(askKnown(server, text)).toBe("accepted");
      await harness.keys.revoke(key.keyId);
      await harness.until("the end", () => ended.length > 0);
      expect(ended).toEqual(["the key was revoked: use another one"]);
      expect(askKnown(server, text)).toBe("unauthorized");
      await server.close();
      if (other !== harness.database) await other.close();
    });

    test("know of a key that was made a moment ago on another server", async () => {
      const server = await harness.serve(unnotified(harness.database));
      const { text } = await make();
      expect(await ask(server, text)).toBe("accepted");
    });

    test("let both keys of a rotation work for the overlap, and then the new one alone", async () => {
      const { key, text } = await make();
      const server = await harness.serve();
      const ended: string[] = [];
      server.watch(ofKey(key.keyId), ({ message }) => ended.push(message));
      const rotated = await harness.keys.rotate(key.keyId, { overlapMs: 60 * 60_000 });
      expect([await ask(server, text), await ask(server, rotated.text)]).toEqual([
        "accepted",
        "accepted",
      ]);
      await harness.clock.advance(1_000);
      expect(ended).toEqual([]);
      harness.clock.jump(61 * 60_000);
      expect(askKnown(server, text)).toBe("unauthorized");
      await harness.until("the end of its sockets", () => ended.length > 0);
      expect(ended).toEqual(["the key has expired: use another one"]);
      await harness.until("a fresh read", () => askKnown(server, rotated.text) === "accepted");
    });

    test("refuse a key once it has expired", async () => {
      const { text } = await make({ expiresAtMs: harness.clock.now() + 10_000 });
      const server = await harness.serve();
      expect(askKnown(server, text)).toBe("accepted");
      harness.clock.jump(10_000);
      expect(askKnown(server, text)).toBe("unauthorized");
    });

    test("accept known keys for a minute while the store is away, and say that of others they can't know", async () => {
      const { control, database } = controlled(harness.database);
      const { key, text } = await make();
      const server = await harness.serve(database);
      const ended: string[] = [];
      server.watch(ofKey(key.keyId), ({ code }) => ended.push(code));
      control.before = away;
      const stranger = unknownKey();
      await harness.until("a failed read", () => askKnown(server, stranger) === "unavailable");
      expect(askKnown(server, text)).toBe("accepted");
      harness.clock.jump(58_000);
      expect([askKnown(server, text), ended]).toEqual(["accepted", []]);
      harness.clock.jump(3_000);
      expect(askKnown(server, text)).toBe("unavailable");
      await harness.until("the end of its sockets", () => ended.length > 0);
      expect(ended).toEqual(["unavailable"]);
      control.before = async () => {};
      await harness.until("the store", () => askKnown(server, text) === "accepted");
      expect(await ask(server, stranger)).toBe("unknown");
    });

    test("accept known keys for ten minutes where sessions go on meanwhile, and refuse what was revoked as soon as it is back", async () => {
      const { control, database } = controlled(harness.database);
      const { text } = await make();
      const { key: leaked, text: leakedText } = await make();
      const hasStreamLogs = () => true;
      const server = await harness.serve(unnotified(database), { hasStreamLogs });
      const known = () => [askKnown(server, text), askKnown(server, leakedText)];
      control.before = away;
      const stranger = unknownKey();
      await harness.until("a failed read", () => askKnown(server, stranger) === "unavailable");
      await harness.keys.revoke(leaked.keyId);
      harness.clock.jump(595_000);
      expect(known()).toEqual(["accepted", "accepted"]);
      harness.clock.jump(6_000);
      expect(known()).toEqual(["unavailable", "unavailable"]);
      control.before = async () => {};
      await harness.until("the store", () => askKnown(server, text) === "accepted");
      expect(known()).toEqual(["accepted", "unauthorized"]);
    });

    test("know of no revocation before the first read, and accept tokens of the last ten minutes where sessions go on", async () => {
      const { control, database } = controlled(harness.database);
      control.before = away;
      await harness.tokens.revoke({ jti: "one" });
      const server = await harness.serve(database, { hasStreamLogs: () => true });
      const elsewhere = await harness.serve(database);
      const { text } = await make();
      const beganMs = harness.clock.now();
      const issued = (agoMs: number, of = server) =>
        of.refusalOf(ofToken({ jti: "one", issuedAtMs: beganMs - agoMs }))?.code;
      expect([issued(0), issued(595_000), issued(-4_000)]).toEqual([
        undefined,
        undefined,
        undefined,
      ]);
      expect([issued(601_000), issued(-6_000), issued(0, elsewhere)]).toEqual([
        "unavailable",
        "unavailable",
        "unavailable",
      ]);
      // One that doesn't say when it was issued may be old.
      expect(server.refusalOf(ofToken())?.code).toBe("unavailable");
      expect(askKnown(server, text)).toBe("unavailable");
      const ended: string[] = [];
      server.watch(ofToken({ issuedAtMs: beganMs }), ({ code }) => ended.push(code));
      harness.clock.jump(601_000);
      await harness.until("the end of its sockets", () => ended.length > 0);
      expect([issued(0), ended]).toEqual(["unavailable", ["unavailable"]]);
      control.before = async () => {};
      await harness.until("the store", () => issued(0) === "unauthorized");
    });

    test("know nothing before the first read, and refuse nothing for good", async () => {
      const { control, database } = controlled(harness.database);
      control.before = away;
      const { text } = await make();
      const server = await harness.serve(database);
      expect(askKnown(server, text)).toBe("unavailable");
      expect(server.refusalOf(ofToken())).toMatchObject({ code: "unavailable" });
      control.before = async () => {};
      await harness.until("the store", () => askKnown(server, text) === "accepted");
      expect(server.refusalOf(ofToken())).toBeUndefined();
    });

    test("give up a read that is never answered, and ignore what it brings later", async () => {
      const { control, database } = controlled(harness.database);
      const { key, text } = await make();
      const server = await harness.serve(unnotified(database));
      const hanging: (() => void)[] = [];
      control.before = () => new Promise((resolve) => hanging.push(resolve));
      await harness.until("a read that hangs", () => hanging.length > 0);
      control.before = async () => {};
      await harness.keys.revoke(key.keyId);
      await harness.until("the next read", () => askKnown(server, text) === "unauthorized");
      for (const release of hanging) release();
      await harness.clock.advance(100);
      expect(askKnown(server, text)).toBe("unauthorized");
    });

    test("make no reads for a flood of unknown keys", async () => {
      const { control, database } = controlled(harness.database);
      const server = await harness.serve(unnotified(database));
      const before = control.reads;
      const answers = Array.from({ length: 5_000 }, async () => server.keyOf(unknownKey()));
      expect(control.reads).toBe(before);
      let isAnswered = false;
      void Promise.all(answers).finally(() => (isAnswered = true));
      await harness.until("their refusal", () => isAnswered);
      expect(new Set(await Promise.all(answers))).toEqual(new Set([undefined]));
      // The read that is made twice a second, and the one after it.
      expect(control.reads - before).toBeLessThanOrEqual(2);
    });

    test("note when a key was last used, in one write a minute that no caller waits for", async () => {
      const { control, database } = controlled(harness.database);
      const made = [await make(), await make(), await make()];
      const server = await harness.serve(unnotified(database));
      const used = async () => (await harness.keys.list()).keys.map((each) => each.lastUsedAtMs);
      expect(await used()).toEqual([null, null, null]);
      for (const { text } of made) expect(askKnown(server, text)).toBe("accepted");
      expect(control.writes).toBe(0);
      await harness.until("a note", async () => !(await used()).includes(null));
      const first = await used();
      for (let n = 0; n < 20; n++) {
        expect(askKnown(server, made[0]!.text)).toBe("accepted");
        await harness.clock.advance(1_000);
      }
      expect([control.writes, await used()]).toEqual([1, first]);
      harness.clock.jump(60_000);
      const third = 2;
      await harness.until("the next note", async () => (await used())[third] !== first[third]);
      expect(control.writes).toBe(2);
      expect((await used()).slice(0, third)).toEqual(first.slice(0, third));
    });

    test("note the last uses when they are closed, and keep them where a note fails", async () => {
      const { control, database } = controlled(harness.database);
      const { text } = await make();
      const server = await harness.serve(unnotified(database));
      expect(askKnown(server, text)).toBe("accepted");
      control.before = away;
      await harness.until("a note that fails", () => control.writes > 0);
      control.before = async () => {};
      await server.close();
      expect((await harness.keys.list()).keys[0]!.lastUsedAtMs).not.toBe(null);
      expect(harness.store.clock ? harness.clock.timers : 0).toBe(0);
    });

    test("see within a minute what was changed by hand", async () => {
      const { key, text } = await make();
      const { text: other } = await make();
      const server = await harness.serve(unnotified(harness.database));
      await harness.database.write([
        sql`delete from ${table("api_key")} where key_id = ${key.keyId}`,
      ]);
      expect(askKnown(server, text)).toBe("accepted");
      harness.clock.jump(60_000);
      const refusal = () => server.refusalOf(ofKey(key.keyId))?.code;
      await harness.until("the whole read", () => refusal() === "unauthorized");
      expect([askKnown(server, text), askKnown(server, other)]).toEqual(["waits", "accepted"]);
    });

    test("see a store that was restored from a back-up", async () => {
      await make();
      const { text: later } = await make();
      const server = await harness.serve(unnotified(harness.database));
      await harness.database.write([
        sql`delete from ${table("api_key")}`,
        sql`delete from ${table("credential_version")}`,
      ]);
      const { text } = await make();
      expect(await ask(server, text)).toBe("accepted");
      await harness.until("the restored keys", () => askKnown(server, later) !== "accepted");
    });

    test("refuse a token by its id, and end what was opened with it", async () => {
      const server = await harness.serve();
      const ended: string[] = [];
      server.watch(ofToken({ jti: "one" }), ({ message }) => ended.push(message));
      server.watch(ofToken({ jti: "two" }), ({ message }) => ended.push(message));
      const revocation = await harness.tokens.revoke({ jti: "one", by: "eve" });
      expect(revocation).toEqual({
        jti: "one",
        createdBy: "eve",
        expiresAtMs: harness.clock.now() + 400 * dayMs,
      });
      await harness.until("the end", () => ended.length > 0);
      expect(ended).toEqual(["the token was revoked: get a new one"]);
      expect(server.refusalOf(ofToken({ jti: "one" }))).toMatchObject({ code: "unauthorized" });
      expect(server.refusalOf(ofToken({ jti: "two" }))).toBeUndefined();
      expect(server.refusalOf(ofToken())).toBeUndefined();
    });

    test("refuse everything that a user was issued before, and nothing that came later", async () => {
      const server = await harness.serve(unnotified(harness.database));
      const beforeMs = harness.clock.now();
      await harness.tokens.revoke({ user: "ada", tenant: "acme" });
      const issued = (issuedAtMs: number, more = {}) =>
        server.refusalOf(ofToken({ issuedAtMs, ...more }))?.code;
      await harness.until("the refusal", () => issued(beforeMs - 5_000) === "unauthorized");
      expect([issued(beforeMs), server.refusalOf(ofToken())?.code]).toEqual([
        "unauthorized",
        "unauthorized",
      ]);
      expect([
        issued(beforeMs + 1_000),
        issued(beforeMs - 5_000, { tenant: "other" }),
        issued(beforeMs - 5_000, { user: "eve" }),
      ]).toEqual([undefined, undefined, undefined]);
      await harness.clock.advance(10_000);
      await harness.tokens.revoke({ user: "ada", tenant: "acme" });
      await harness.until("the later refusal", () => issued(beforeMs + 1_000) === "unauthorized");
    });

    test("refuse tokens that are older than revocations are kept", async () => {
      const server = await harness.serve();
      const nowMs = harness.clock.now();
      expect(server.refusalOf(ofToken({ issuedAtMs: nowMs - 401 * dayMs }))).toMatchObject({
        code: "unauthorized",
      });
      expect(server.refusalOf(ofToken({ issuedAtMs: nowMs - 399 * dayMs }))).toBeUndefined();
    });

    test("forget revocations that no token needs any more", async () => {
      const revoked = async () => (await harness.tokens.revocations()).revocations;
      const expiresAtMs = harness.clock.now() + 60_000;
      await harness.tokens.revoke({ jti: "short", expiresAtMs });
      await harness.tokens.revoke({ user: "ada" });
      expect(await revoked()).toMatchObject([{ jti: "short", expiresAtMs }, { user: "ada" }]);
      await harness.database.write([
        sql`update ${table("token_revocation")} set expires_at = 1 where subject = 'short'`,
      ]);
      expect(await revoked()).toMatchObject([{ user: "ada", tenant: "default" }]);
      await harness.tokens.revoke({ jti: "other" });
      const [row] = await harness.database.read(
        sql`select count(*) as count from ${table("token_revocation")}`,
      );
      expect(Number(row!["count"])).toBe(2);
    });

    test("list revocations page by page", async () => {
      for (const jti of ["a", "b", "c"]) await harness.tokens.revoke({ jti });
      for (const user of ["d", "e"]) await harness.tokens.revoke({ user, tenant: "acme" });
      const first = await harness.tokens.revocations({ limit: 3 });
      const second = await harness.tokens.revocations({ limit: 3, cursor: first.next! });
      expect(first.revocations).toMatchObject([{ jti: "a" }, { jti: "b" }, { jti: "c" }]);
      expect(second).toMatchObject({
        revocations: [
          { user: "d", tenant: "acme" },
          { user: "e", tenant: "acme" },
        ],
        next: null,
      });
    });

    test("keep ten thousand revocations at most, and extend those that are there", async () => {
      await harness.tokens.revoke({ user: "ada" });
      const numbers = rows(
        { n: "integer" },
        Array.from({ length: 9_999 }, (_, n) => [n]),
      );
      await harness.database.write([
        sql`insert into ${table("token_revocation")}
            (kind, tenant, subject, before_at, expires_at, version)
          select 'jti', '', 'jti-' || made.n, 1, ${harness.clock.now() + dayMs}, 1
          from ${numbers} made`,
      ]);
      await expect(harness.tokens.revoke({ jti: "more" })).rejects.toMatchObject({
        code: "overloaded",
      });
      await expect(harness.tokens.revoke({ user: "ada" })).resolves.toMatchObject({ user: "ada" });
    });

    test.each([
      [{}],
      [{ jti: "a", user: "ada" }],
      [{ jti: "" }],
      [{ jti: "a".repeat(501) }],
      [{ jti: "a", tenant: "acme" }],
      [{ jti: "a", expiresAtMs: 1 }],
      [{ user: "ada", expiresAtMs: Number.MAX_SAFE_INTEGER }],
      [{ user: "a\u0000" }],
    ])("refuse no tokens by %j", async (options) => {
      const wrong = harness.tokens.revoke(options as never);
      await expect(wrong).rejects.toMatchObject({ code: "invalid_option" });
    });

    test.each([
      "",
      "x",
      Buffer.from('["a",1,"b"]').toString("base64url"),
      "WyJcdTAwMDAiLCIiLCIiXQ",
    ])("refuse the cursor %j of no page", async (cursor) => {
      const wrong = harness.tokens.revocations({ cursor });
      await expect(wrong).rejects.toMatchObject({ code: "invalid_option" });
    });
  });
}
