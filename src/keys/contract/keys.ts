import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { actAs } from "../../audit/actor.ts";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { verbsOfRole, type Verb } from "../../protocol/verbs.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import { openKeys } from "./harness.ts";

/** What keys in the store promise on every kind of store. */
export function keysContract(kind: StoreKind): void {
  describe(`keys on ${kind.name}`, () => {
    const harness = openKeys(kind);
    const ofKeys = table("api_key");
    /** Statements of one transaction may see different milliseconds. */
    const near = (ms: number) => expect.closeTo(ms, -4) as number;
    const make = (more = {}) => harness.keys.create({ name: "ci", role: "operator", ...more });

    test("are in the audit with who changed them, once for each change and without their text", async () => {
      const ada = { kind: "key", keyName: "ada" } as const;
      const changes = async () => {
        const { key, text } = await make({ tenant: "acme" });
        const { key: next, text: nextText } = await harness.keys.rotate(key.keyId);
        await harness.keys.revoke(next.keyId);
        // Nothing is left to do.
        await harness.keys.revoke(next.keyId);
        await harness.tokens.revoke({ user: "zoe" });
        return { ids: [key.keyId, next.keyId, key.keyId, "zoe"], texts: [text, nextText] };
      };
      const { ids, texts } = await actAs(ada, changes);
      // On a clock that stands still they have no order of time.
      const entries = await harness.database.read(
        sql`select * from ${table("audit")} order by action`,
      );
      expect(entries.map(({ actor, action, subject }) => [actor, action, subject])).toEqual(
        ["keys.create", "keys.revoke", "keys.rotate", "tokens.revoke"].map((action, at) => [
          "key/ada",
          action,
          ids[at],
        ]),
      );
      for (const text of texts) expect(JSON.stringify(entries)).not.toContain(text);
    });

    test("are made once where an act is sent again, and the text isn't shown again", async () => {
      const clicked = { kind: "key", keyName: "ada", actId: "click-1" } as const;
      await actAs(clicked, () => make());
      await expect(actAs(clicked, () => make())).rejects.toMatchObject({ code: "conflict" });
      expect((await harness.keys.list()).keys).toHaveLength(1);
    });

    test("are shown once, and stored as a hash", async () => {
      const { key, text } = await make({ by: "ada", payloads: true });
      expect(text).toMatch(/^fl_[\w-]{43}$/);
      expect(key).toMatchObject({
        name: "ci",
        role: "operator",
        tenant: null,
        payloads: true,
        status: "active",
        createdBy: "ada",
        expiresAtMs: null,
        lastUsedAtMs: null,
        revokedAtMs: null,
        replacedBy: null,
      });
      expect(await harness.keys.list()).toEqual({ keys: [key], next: null });
      const [row] = await harness.database.read(sql`select * from ${ofKeys}`);
      expect(row!["hash"]).toBe(createHash("sha256").update(text).digest("hex"));
      expect(JSON.stringify(row)).not.toContain(text.slice(3));
    });

    test("never have the same text", async () => {
      const made = [];
      for (let n = 0; n < 20; n++) made.push((await make()).text);
      expect(new Set(made).size).toBe(20);
    });

    test("are listed page by page, the newest first", async () => {
      const made = [];
      for (const name of ["a", "b", "c", "d", "e"]) made.push((await make({ name })).key.keyId);
      const first = await harness.keys.list({ limit: 3 });
      const second = await harness.keys.list({ limit: 3, cursor: first.next! });
      expect(first.keys.map(({ name }) => name)).toEqual(["e", "d", "c"]);
      expect(second.keys.map(({ name }) => name)).toEqual(["b", "a"]);
      expect(second.next).toBe(null);
    });

    test("are revoked once, at the time of the first revocation", async () => {
      const { key } = await make();
      const revoked = await harness.keys.revoke(key.keyId);
      expect(revoked).toMatchObject({ status: "revoked", revokedAtMs: expect.any(Number) });
      await harness.clock.advance(5);
      expect(await harness.keys.revoke(key.keyId)).toEqual(revoked);
      expect((await harness.keys.list()).keys).toEqual([revoked]);
      await expect(harness.keys.revoke("none")).rejects.toMatchObject({ code: "not_found" });
    });

    test("are rotated to one with the same rights, and end after the overlap", async () => {
      const { key, text } = await make({ tenant: "acme", payloads: true });
      const rotated = await harness.keys.rotate(key.keyId, { overlapMs: 60_000, by: "eve" });
      expect(rotated.text).not.toBe(text);
      expect(rotated.key).toMatchObject({
        name: "ci",
        role: "operator",
        tenant: "acme",
        payloads: true,
        status: "active",
        createdBy: "eve",
        expiresAtMs: null,
      });
      const { replaced } = rotated;
      expect(replaced).toMatchObject({
        keyId: key.keyId,
        status: "active",
        replacedBy: rotated.key.keyId,
        expiresAtMs: near(rotated.key.createdAtMs + 60_000),
      });
    });

    test("overlap for a day, unless told otherwise, and not beyond their own end", async () => {
      const { key } = await make();
      const { replaced, key: next } = await harness.keys.rotate(key.keyId);
      expect(replaced.expiresAtMs).toEqual(near(next.createdAtMs + dayMs));
      const expiresAtMs = harness.clock.now() + 60 * 60_000;
      const short = await make({ expiresAtMs });
      const rotated = await harness.keys.rotate(short.key.keyId);
      expect(rotated.replaced.expiresAtMs).toBe(expiresAtMs);
      // The new one lives as long as the old one was to live.
      const lifeMs = expiresAtMs - short.key.createdAtMs;
      expect(rotated.key.expiresAtMs).toEqual(near(rotated.key.createdAtMs + lifeMs));
      const ended = await harness.keys.rotate(next.keyId, { overlapMs: 0 });
      expect(ended.replaced.status).toBe("expired");
    });

    test("that have ended or were rotated are not rotated again", async () => {
      const conflict = expect.objectContaining({ code: "conflict" });
      const { key } = await make();
      await harness.keys.rotate(key.keyId);
      await expect(harness.keys.rotate(key.keyId)).rejects.toEqual(conflict);
      const { key: other } = await make();
      await harness.keys.revoke(other.keyId);
      await expect(harness.keys.rotate(other.keyId)).rejects.toEqual(conflict);
      await expect(harness.keys.rotate("none")).rejects.toMatchObject({ code: "not_found" });
      expect((await harness.keys.list()).keys).toHaveLength(3);
    });

    test("that several rotate at once get one successor", async () => {
      const { key } = await make();
      const settled = await Promise.allSettled(
        Array.from({ length: 6 }, () => harness.keys.rotate(key.keyId)),
      );
      expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      expect((await harness.keys.list()).keys).toHaveLength(2);
    });

    test("are made, rotated and revoked once where the store's answer is lost", async () => {
      const keys = harness.keysOn(losingAnswers(harness.database));
      const settle = async <Value>(promise: Promise<Value>): Promise<Value> => {
        let isSettled = false;
        void promise.catch(() => {}).finally(() => (isSettled = true));
        await harness.until("an answer", () => isSettled);
        return promise;
      };
      const { key } = await settle(keys.create({ name: "ci", role: "viewer" }));
      const rotated = await settle(keys.rotate(key.keyId));
      expect(rotated.replaced.replacedBy).toBe(rotated.key.keyId);
      expect(await settle(keys.revoke(rotated.key.keyId))).toMatchObject({ status: "revoked" });
      expect((await harness.keys.list()).keys).toHaveLength(2);
    });

    test("of a tenant are never an administrator's", async () => {
      const wrong = make({ role: "admin", tenant: "acme" });
      await expect(wrong).rejects.toMatchObject({ code: "invalid_option" });
    });

    test("can't be made or rotated by one that may do less", async () => {
      const forbidden = expect.objectContaining({ code: "forbidden" });
      const rights = (verbs: readonly Verb[], more = {}) => ({
        within: { verbs: new Set(verbs), payloads: false, ...more },
      });
      const operator = verbsOfRole.operator;
      await expect(make({ role: "admin", ...rights(operator) })).rejects.toEqual(forbidden);
      await expect(make({ role: "operator", ...rights(["tasks:read"]) })).rejects.toEqual(
        forbidden,
      );
      await expect(make({ payloads: true, ...rights(["admin"]) })).rejects.toEqual(forbidden);
      const ofAcme = rights(operator, { tenant: "acme" });
      await expect(make(ofAcme)).rejects.toEqual(forbidden);
      await expect(make({ tenant: "other", ...ofAcme })).rejects.toEqual(forbidden);
      expect(await make({ tenant: "acme", ...ofAcme })).toMatchObject({ key: { tenant: "acme" } });
      expect(await make({ role: "admin", ...rights(["admin"]) })).toMatchObject({
        key: { role: "admin" },
      });
      const { key } = await make({ role: "admin", payloads: true });
      await expect(harness.keys.rotate(key.keyId, rights(operator))).rejects.toEqual(forbidden);
      await expect(harness.keys.rotate(key.keyId, rights(["admin"]))).rejects.toEqual(forbidden);
    });

    test.each([
      [{ name: "" }],
      [{ name: "x".repeat(201) }],
      [{ name: "a\u0000b" }],
      [{ role: "root" }],
      [{ role: "constructor" }],
      [{ tenant: "" }],
      [{ payloads: "yes" }],
      [{ expiresAtMs: 1 }],
      [{ expiresAtMs: Number.POSITIVE_INFINITY }],
      [{ unknown: true }],
    ])("are refused with %j", async (more) => {
      await expect(make(more)).rejects.toMatchObject({ code: "invalid_option" });
      expect((await harness.keys.list()).keys).toEqual([]);
    });

    test("that ended a month ago are gone with the next change", async () => {
      const { key: old } = await make();
      const { key: recent } = await make();
      for (const { keyId } of [old, recent]) await harness.keys.revoke(keyId);
      await harness.database.write([
        sql`update ${ofKeys} set revoked_at = revoked_at - ${31 * dayMs} where key_id = ${old.keyId}`,
      ]);
      const { key } = await make();
      expect((await harness.keys.list()).keys.map(({ keyId }) => keyId)).toEqual([
        key.keyId,
        recent.keyId,
      ]);
    });

    test("are ten thousand at most", async () => {
      const { key } = await make();
      const numbers = rows(
        { n: "integer" },
        Array.from({ length: 9_999 }, (_, n) => [n]),
      );
      await harness.database.write([
        sql`insert into ${ofKeys} (key_id, hash, name, role, version)
          select 'key-' || made.n, 'hash-' || made.n, 'many', 'viewer', 1 from ${numbers} made`,
      ]);
      await expect(make()).rejects.toMatchObject({ code: "overloaded" });
      await expect(harness.keys.rotate(key.keyId)).rejects.toMatchObject({ code: "overloaded" });
      await harness.database.write([sql`delete from ${ofKeys} where key_id = 'key-7'`]);
      await expect(make()).resolves.toBeDefined();
    });
  });
}

/** A store whose every second answer to a write is lost, after the write was made. */
function losingAnswers(database: Database): Database {
  let sent = 0;
  return {
    ...database,
    async write(statements, options) {
      const tables = await database.write(statements, options);
      if (sent++ % 2 === 0) throw new FlotillaError("unknown_outcome", "the answer was lost");
      return tables;
    },
  };
}
