import { describe, expect, test } from "vitest";
import { actAs } from "../../audit/actor.ts";
import { createAudit } from "../../audit/audit.ts";
import { markFull } from "../../audit/sql.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import type { Credential, Credentials } from "../credentials.ts";
import type { NewSignIn } from "../sign-ins.ts";
import { controlled, openKeys, unnotified } from "./harness.ts";

const minuteMs = 60_000;
const ofSignIns = table("sign_in");

/** Browsers that have signed in, as servers on one store know them. */
export function signInsContract(kind: StoreKind): void {
  describe(`sign-ins on ${kind.name}`, () => {
    const harness = openKeys(kind);
    const makeKey = (more = {}) => harness.keys.create({ name: "ci", role: "operator", ...more });
    const signIn = (more: Partial<NewSignIn> = {}) =>
      harness.signIns.create({
        keyName: "ci",
        role: "operator",
        tenant: null,
        verbs: ["fleet:read", "fleet:operate"],
        origin: "https://ops.example",
        address: "10.0.0.1",
        ...more,
      });
    const made = async (more: Partial<NewSignIn> = {}) => {
      const { key } = await makeKey();
      return { key, ...(await signIn({ keyId: key.keyId, ...more })) };
    };
    const ofSignIn = (signInId: string): Credential => ({ kind: "sign-in", signInId });

    /** How a cookie is answered now. */
    const answer = (server: Credentials, text: string): string => {
      try {
        const found = server.signInOf(text);
        if (!(found instanceof Promise)) return found ? "accepted" : "unknown";
        found.catch(() => {});
        return "waits";
      } catch (error) {
        return (error as FlotillaError).code;
      }
    };
    const becomes = (server: Credentials, text: string, wanted: string) =>
      harness.until(wanted, () => answer(server, text) === wanted);
    const audit = async () =>
      (await createAudit({ database: harness.database }).list()).entries.filter(({ action }) =>
        action.startsWith("sign-ins."),
      );

    test("are accepted with their key, on a server that has just begun and on one that has not", async () => {
      const early = await harness.serve(unnotified(harness.database));
      const { key, signIn: view, text } = await made();
      expect(view).toMatchObject({
        keyId: key.keyId,
        keyName: "ci",
        role: "operator",
        tenant: null,
        verbs: ["fleet:read", "fleet:operate"],
        origin: "https://ops.example",
        address: "10.0.0.1",
      });
      expect(view.expiresAtMs - view.createdAtMs).toBe(12 * 60 * minuteMs);
      await becomes(early, text, "accepted");
      const late = await harness.serve();
      const found = await late.signInOf(text);
      expect(found).toMatchObject({ signInId: view.signInId, key: { keyId: key.keyId } });
      expect(found!.key!.verbs.has("fleet:operate")).toBe(true);
      for (const other of ["", "x", `${text}x`, "x".repeat(100_000)])
        expect(answer(late, other)).toBe("unknown");
    });

    test("have the hash of their cookie in the store, and nothing that the key could be guessed by", async () => {
      const bound: string[] = [];
      const { text } = await signIn({
        bind: (each) => {
          bound.push(each);
          return "proof";
        },
      });
      expect(bound).toEqual([text]);
      const [row] = await harness.database.read(sql`select * from ${ofSignIns}`);
      expect(row).toMatchObject({ binding: "proof", key_id: null });
      expect(JSON.stringify(row)).not.toContain(text);
      const server = await harness.serve();
      expect(await server.signInOf(text)).toMatchObject({ binding: "proof" });
    });

    test("are waited for once where a cookie is unknown, until everything is read again", async () => {
      const server = await harness.serve(unnotified(harness.database));
      const stranger = "x".repeat(43);
      expect(answer(server, stranger)).toBe("waits");
      await becomes(server, stranger, "unknown");
      harness.clock.jump(minuteMs);
      await becomes(server, stranger, "waits");
      // One that is made meanwhile is no stranger.
      const { text } = await made();
      expect(answer(server, text)).toBe("waits");
      await becomes(server, text, "accepted");
    });

    test("end after an hour without use, and go on as long as they are used", async () => {
      const { text, signIn: view } = await made();
      const server = await harness.serve();
      for (let n = 0; n < 3; n++) {
        harness.clock.jump(59 * minuteMs);
        await becomes(server, text, "accepted");
        server.useSignIn(view.signInId);
      }
      harness.clock.jump(60 * minuteMs);
      await becomes(server, text, "unauthorized");
      expect(server.refusalOf(ofSignIn(view.signInId))).toMatchObject({
        message: "the sign-in has expired: sign in again",
        details: { signIn: "expired" },
      });
    });

    test("end after twelve hours however much they are used", async () => {
      const { text, signIn: view } = await made();
      const server = await harness.serve();
      for (let n = 0; n < 23; n++) {
        harness.clock.jump(30 * minuteMs);
        await becomes(server, text, "accepted");
        server.useSignIn(view.signInId);
      }
      harness.clock.jump(view.expiresAtMs - harness.clock.now() - 1_000);
      await becomes(server, text, "accepted");
      await harness.clock.advance(1_000);
      expect(answer(server, text)).toBe("unauthorized");
    });

    test("are used on one server and so not idle on another, with a write in a minute at most", async () => {
      const { text, signIn: view } = await made();
      const { control, database } = controlled(harness.database);
      const used = await harness.serve(database);
      const other = await harness.serve(unnotified(harness.database));
      harness.clock.jump(40 * minuteMs);
      await becomes(used, text, "accepted");
      const before = control.writes;
      for (let n = 0; n < 100; n++) {
        used.useSignIn(view.signInId);
        await harness.clock.advance(100);
      }
      await harness.until("a note", () => control.writes > before);
      expect(control.writes - before).toBe(1);
      harness.clock.jump(40 * minuteMs);
      await becomes(other, text, "accepted");
    });

    test("end with their key, everywhere and with their sockets", async () => {
      const { key, text, signIn: view } = await made();
      const other = (await harness.store.again?.()) ?? harness.database;
      const server = await harness.serve(other);
      await becomes(server, text, "accepted");
      const ended: string[] = [];
      server.watch(ofSignIn(view.signInId), ({ message }) => ended.push(message));
      await harness.keys.revoke(key.keyId);
      await harness.until("the end", () => ended.length > 0);
      expect(ended).toEqual([
        "the sign-in's key was revoked or has expired: sign in with another one",
      ]);
      expect(answer(server, text)).toBe("unauthorized");
      await server.close();
      if (other !== harness.database) await other.close();
    });

    test("end when their key has expired, or was rotated and its overlap is over", async () => {
      const { key: short } = await makeKey({ expiresAtMs: harness.clock.now() + 10_000 });
      const { key: rotated } = await makeKey();
      const first = await signIn({ keyId: short.keyId });
      const second = await signIn({ keyId: rotated.keyId });
      const server = await harness.serve();
      for (const { text } of [first, second]) await becomes(server, text, "accepted");
      await harness.keys.rotate(rotated.keyId, { overlapMs: 0 });
      await becomes(server, second.text, "unauthorized");
      expect(answer(server, first.text)).toBe("accepted");
      await harness.clock.advance(10_000);
      await becomes(server, first.text, "unauthorized");
    });

    test("end when they are ended, within a second where no notification comes, with their sockets", async () => {
      const { text, signIn: view } = await made();
      const server = await harness.serve(unnotified(harness.database));
      await becomes(server, text, "accepted");
      const ended: string[] = [];
      server.watch(ofSignIn(view.signInId), ({ message }) => ended.push(message));
      expect(await harness.signIns.end(view.signInId)).toMatchObject({ signInId: view.signInId });
      const passedMs = await becomes(server, text, "unauthorized");
      // Elsewhere the store answers in its own time, and this clock goes on meanwhile.
      expect(harness.store.clock ? passedMs : 0).toBeLessThanOrEqual(1_000);
      expect(ended).toEqual(["the sign-in has ended: sign in again"]);
      expect((await harness.signIns.list()).signIns).toEqual([]);
      // What was used until a moment ago doesn't come back with its last use.
      server.useSignIn(view.signInId);
      await harness.clock.advance(2 * minuteMs);
      await becomes(server, text, "unauthorized");
      await expect(harness.signIns.end("none")).rejects.toMatchObject({ code: "not_found" });
    });

    test("are listed and ended by their own key alone", async () => {
      const one = await made();
      const two = await made();
      const named = await signIn({ keyName: "web", tenant: "acme" });
      const idsOf = async (owner: object) =>
        (await harness.signIns.list({ owner })).signIns.map(({ signInId }) => signInId);
      expect(await idsOf({ keyId: one.key.keyId })).toEqual([one.signIn.signInId]);
      expect(await idsOf({ keyName: "web", tenant: "acme" })).toEqual([named.signIn.signInId]);
      // A key of the store with the name of one of the config is another key, and so is one of a tenant.
      for (const owner of [
        {},
        { keyName: "ci" },
        { keyName: "web" },
        { keyName: "web", tenant: "x" },
      ])
        expect(await idsOf(owner)).toEqual([]);
      const owner = { keyId: one.key.keyId };
      await expect(harness.signIns.end(two.signIn.signInId, { owner })).rejects.toMatchObject({
        code: "not_found",
      });
      await harness.signIns.end(one.signIn.signInId, { owner });
      const left = await harness.signIns.list({ limit: 1 });
      expect(left.signIns[0]).toEqual(named.signIn);
      const next = await harness.signIns.list({ limit: 1, cursor: left.next! });
      expect(next).toEqual({ signIns: [two.signIn], next: null });
    });

    test("leave an entry when they are made and when another ends them, and none when their own key does", async () => {
      const actor = { kind: "key", keyName: "ci", address: "10.0.0.1", role: "operator" } as const;
      const { key } = await makeKey();
      const own = await actAs(actor, () => signIn({ keyId: key.keyId }));
      const other = await signIn({ keyId: key.keyId });
      await harness.signIns.end(own.signIn.signInId, { owner: { keyId: key.keyId } });
      await actAs({ ...actor, actId: "a1" }, async () => {
        await harness.signIns.end(other.signIn.signInId);
        await harness.signIns.end(other.signIn.signInId);
      });
      const [ending, , making, ...more] = await audit();
      expect(more).toEqual([]);
      expect(making).toMatchObject({
        action: "sign-ins.create",
        subject: own.signIn.signInId,
        actor: "key/ci",
        address: "10.0.0.1",
        after: { origin: "https://ops.example" },
      });
      expect(ending).toMatchObject({
        action: "sign-ins.end",
        subject: other.signIn.signInId,
        actId: "a1",
      });
      expect(JSON.stringify(await audit())).not.toContain(own.text);
    });

    test("can be ended by their own key while the audit is full, which refuses new ones", async () => {
      const { key, signIn: view } = await made();
      await harness.database.write([markFull("full", 1)]);
      await expect(signIn({ keyId: key.keyId })).rejects.toBeInstanceOf(FlotillaError);
      await harness.signIns.end(view.signInId, { owner: { keyId: key.keyId } });
      expect((await harness.signIns.list()).signIns).toEqual([]);
    });

    test("take the place of the one that the browser had before", async () => {
      const { key, text } = await made();
      const server = await harness.serve();
      const next = await signIn({ keyId: key.keyId, replaces: text });
      await becomes(server, text, "unauthorized");
      await becomes(server, next.text, "accepted");
      expect((await harness.signIns.list()).signIns).toEqual([next.signIn]);
    });

    test("take that place also where their key has as many as it may, and leave it where they are refused", async () => {
      const { key } = await makeKey();
      let last = await signIn({ keyId: key.keyId });
      for (let n = 1; n < 100; n++) last = await signIn({ keyId: key.keyId });
      const next = await signIn({ keyId: key.keyId, replaces: last.text });
      const other = await made();
      const server = await harness.serve();
      await expect(signIn({ keyId: key.keyId, replaces: other.text })).rejects.toMatchObject({
        code: "overloaded",
      });
      await becomes(server, last.text, "unauthorized");
      await becomes(server, next.text, "accepted");
      await becomes(server, other.text, "accepted");
    });

    test("are a hundred of a key at most, and those that have ended don't count", async () => {
      const { key } = await makeKey();
      const all = [];
      for (let n = 0; n < 100; n++) all.push(await signIn({ keyId: key.keyId }));
      await expect(signIn({ keyId: key.keyId })).rejects.toMatchObject({ code: "overloaded" });
      const { key: other } = await makeKey();
      await signIn({ keyId: other.keyId });
      await harness.signIns.end(all[0]!.signIn.signInId);
      await signIn({ keyId: key.keyId });
      await expect(signIn({ keyId: key.keyId })).rejects.toMatchObject({ code: "overloaded" });
    });

    test("are a thousand of a key in ten minutes, so that signing in and out takes no other's", async () => {
      const { key } = await makeKey();
      const { key: other } = await makeKey();
      const { signIn: first } = await signIn({ keyId: key.keyId });
      const numbers = rows(
        { n: "integer" },
        Array.from({ length: 999 }, (_, n) => [n]),
      );
      const nowMs = harness.clock.now();
      await harness.database.write([
        sql`insert into ${ofSignIns}
            (sign_in_id, hash, key_id, key_name, verbs, origin, last_used_at, expires_at, ended_at, version)
          select 'e-' || made.n, 'ended-' || made.n, ${key.keyId}, ${first.keyName}, '[]', 'https://a',
            ${nowMs}, ${nowMs + minuteMs}, ${nowMs}, 1 from ${numbers} made`,
      ]);
      await expect(signIn({ keyId: key.keyId })).rejects.toMatchObject({ code: "overloaded" });
      await signIn({ keyId: other.keyId });
    });

    test("are ten thousand in all, and gone some minutes after their end", async () => {
      const numbers = rows(
        { n: "integer" },
        Array.from({ length: 10_000 }, (_, n) => [n]),
      );
      const nowMs = harness.clock.now();
      await harness.database.write([
        sql`insert into ${ofSignIns}
            (sign_in_id, hash, key_name, verbs, origin, last_used_at, expires_at, version)
          select 's-' || made.n, 'hash-' || made.n, 'k-' || made.n, '[]', 'https://a', ${nowMs},
            ${nowMs + minuteMs}, 1 from ${numbers} made`,
      ]);
      await expect(signIn()).rejects.toMatchObject({ code: "overloaded" });
      const longAgoMs = nowMs - 120 * minuteMs;
      await harness.database.write([
        sql`update ${ofSignIns} set ended_at = ${longAgoMs} where sign_in_id = 's-1'`,
        sql`update ${ofSignIns} set expires_at = ${longAgoMs} where sign_in_id = 's-2'`,
        sql`update ${ofSignIns} set last_used_at = ${longAgoMs} where sign_in_id = 's-3'`,
      ]);
      await signIn();
      const left = await harness.database.read(
        sql`select sign_in_id from ${ofSignIns} where sign_in_id in ('s-1', 's-2', 's-3', 's-4')`,
      );
      expect(left).toEqual([{ sign_in_id: "s-4" }]);
    });

    test("are one where the answer to the first write was lost", async () => {
      const { key } = await makeKey();
      let sent = 0;
      const losing = {
        ...harness.database,
        write: async (...given: Parameters<typeof harness.database.write>) => {
          const tables = await harness.database.write(...given);
          if (sent++ === 0) throw new FlotillaError("unknown_outcome", "the answer was lost");
          return tables;
        },
      };
      const creating = harness.signInsOn(losing).create({
        keyId: key.keyId,
        keyName: "ci",
        role: null,
        tenant: null,
        verbs: [],
        origin: "https://ops.example",
        address: null,
      });
      let isDone = false;
      void creating.finally(() => (isDone = true)).catch(() => {});
      await harness.until("an answer", () => isDone);
      const { text } = await creating;
      expect((await harness.signIns.list()).signIns).toHaveLength(1);
      expect(await audit()).toHaveLength(1);
      const server = await harness.serve();
      await becomes(server, text, "accepted");
    });

    test("are accepted for a minute while the store is away, and then can't be known", async () => {
      const config = await signIn({ bind: () => "proof" });
      const stored = await made();
      const { control, database } = controlled(harness.database);
      const server = await harness.serve(database);
      for (const { text } of [config, stored]) await becomes(server, text, "accepted");
      control.before = () => Promise.reject(new FlotillaError("store_unavailable", "gone"));
      harness.clock.jump(50_000);
      for (const { text } of [config, stored]) expect(answer(server, text)).toBe("accepted");
      harness.clock.jump(11_000);
      for (const { text } of [config, stored]) expect(answer(server, text)).toBe("unavailable");
      control.before = async () => {};
      for (const { text } of [config, stored]) await becomes(server, text, "accepted");
    });
  });
}
