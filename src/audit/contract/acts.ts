import { type LogRecord, logs, SeverityNumber } from "@opentelemetry/api";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { actions } from "../act.ts";
import { actAs, type Actor } from "../actor.ts";
import { markFull } from "../sql.ts";
import {
  type ActCase,
  acts,
  type ActsHarness,
  type Clients,
  inHandler,
  openActs,
} from "./harness.ts";

const operator: Actor = {
  kind: "key",
  keyName: "web",
  user: "zoe",
  role: "operator",
  address: "10.0.0.1",
  tenant: "acme",
};
const cases = acts.map((each) => [each.action, each] as const);
/** What finds everything as it should be changes nothing; the others make one thing more each time. */
const repeatable = ["redrives.start", "bulk.start", "schedules.fire", "agents.replace"];

/** What every act promises of its entry in the audit, on every store. */
export function actsContract(kind: StoreKind): void {
  describe(`acts on ${kind.name}`, () => {
    let scene: ActsHarness;
    beforeEach(async () => {
      scene = await openActs(kind);
    });
    afterEach(() => scene.close());

    const arranged = async ({ arrange }: ActCase) => {
      if (arrange) await inHandler(() => arrange(scene.clients()));
      expect(await scene.entries()).toEqual([]);
    };
    /** The outcome of an act, with time passing while it waits. */
    const done = <Value>(act: Promise<Value>) => scene.queue.outcome(act, { stepMs: 50 });

    test("are all in the table that the next tests go through", () => {
      const listed = acts.map(({ action }) => action as string);
      // Acts on sessions are in the records of their logs, and the leader alone says that there is no room.
      // Those on keys and tokens are in the suite of keys: what is shown once can't be answered twice.
      const others = actions.filter((each) =>
        /^(?:sessions|audit|keys|sign-ins|tokens)\./.test(each),
      );
      expect([...listed, ...others].toSorted()).toEqual(actions.toSorted());
    });

    test.each(cases)("%s leaves one entry, with who, what, before and after", async (_, each) => {
      await arranged(each);
      await actAs(operator, () => each.act(scene.clients()));
      const entries = await scene.entries();
      expect(entries).toHaveLength(1);
      expect(entries[0]).toMatchObject({
        action: each.action,
        actor: "key/web",
        kind: "key",
        keyName: "web",
        user: "zoe",
        role: "operator",
        address: "10.0.0.1",
        tenant: "acme",
        outcome: "done",
        actId: null,
        ...each.entry,
      });
    });

    test.each(cases.filter(([action]) => !repeatable.includes(action)))(
      "%s leaves none where it changes nothing",
      async (_, each) => {
        await arranged(each);
        const on = scene.clients();
        await actAs(operator, () => each.act(on));
        const before = await scene.state();
        await Promise.resolve(actAs(operator, () => each.act(on))).catch(() => {});
        expect(await scene.state()).toBe(before);
        expect(await scene.entries()).toHaveLength(1);
      },
    );

    test.each(cases)("%s leaves none in a handler, and is done all the same", async (_, each) => {
      await arranged(each);
      const before = await scene.state();
      const paused = () => scene.clients().tasks.paused();
      const pausedBefore = await paused();
      await inHandler(() => actAs(operator, () => each.act(scene.clients())));
      const isChanged = (await scene.state()) !== before;
      expect(isChanged || JSON.stringify(await paused()) !== JSON.stringify(pausedBefore)).toBe(
        true,
      );
      expect(await scene.entries()).toEqual([]);
    });

    test.each(cases)(
      "%s is refused while the audit is full, and changes nothing",
      async (_, each) => {
        await arranged(each);
        const { database } = scene.queue;
        await database.write([markFull("full", 1)]);
        const before = await scene.state();
        const refused = actAs(operator, () => each.act(scene.clients()));
        await expect(refused).rejects.toMatchObject({
          code: "overloaded",
          message: expect.stringContaining("audit.maxEntries"),
        });
        expect(await scene.state()).toBe(before);
        expect(await scene.entries()).toMatchObject([{ action: "audit.full", outcome: "full" }]);
      },
    );

    test.each(cases)("%s leaves one entry where its answer is lost", async (_, each) => {
      await arranged(each);
      const on = scene.clients(scene.losing());
      await done(actAs(operator, () => each.act(on)));
      expect(await scene.entries()).toMatchObject([{ action: each.action, ...each.entry }]);
    });

    test.each(cases)(
      "%s sent twice with one id is one act, and is answered alike",
      async (_, each) => {
        await arranged(each);
        const clicked = { ...operator, actId: "click-1" };
        const send = () => actAs(clicked, () => each.act(scene.clients()));
        const first = await send();
        const before = await scene.state();
        const second = await send();
        expect(await scene.state()).toBe(before);
        expect(second).toEqual(first);
        expect(await scene.entries()).toMatchObject([{ action: each.action, actId: "click-1" }]);
      },
    );

    /** What an SDK that the program has registered gets to export. */
    const exported = (emit?: (record: LogRecord) => void): LogRecord[] => {
      const records: LogRecord[] = [];
      const collect = (record: LogRecord) => void records.push(record);
      logs.setGlobalLoggerProvider({
        getLogger: () => ({ emit: emit ?? collect, enabled: () => true }),
      });
      onTestFinished(() => logs.disable());
      return records;
    };

    test.each(cases)("%s is one log record of OpenTelemetry, with no payload", async (_, each) => {
      await arranged(each);
      const records = exported();
      await actAs(operator, () => each.act(scene.clients()));
      await Promise.resolve(inHandler(() => each.act(scene.clients()))).catch(() => {});
      const [entry] = await scene.entries();
      expect(records).toHaveLength(1);
      const [{ eventName, severityNumber, attributes }] = records as [LogRecord];
      expect({ eventName, severityNumber }).toEqual({
        eventName: "flotilla.audit",
        severityNumber: SeverityNumber.INFO,
      });
      expect(attributes).toMatchObject({
        "flotilla.audit.id": entry!.id,
        "flotilla.audit.action": each.action,
        "flotilla.audit.actor": "key/web",
        "flotilla.audit.user": "zoe",
        "flotilla.audit.role": "operator",
        "flotilla.audit.tenant": "acme",
        "flotilla.audit.address": "10.0.0.1",
        // An act of several transactions is reported with its first.
        "flotilla.audit.outcome": expect.stringMatching(/^(?:done|begun)$/),
        ...(entry!.subject !== null && { "flotilla.audit.subject": entry!.subject }),
      });
      expect(JSON.stringify(records)).not.toContain("canary-secret");
    });

    test.each(cases)("%s is one log record also where its answer is lost", async (_, each) => {
      await arranged(each);
      const records = exported();
      await done(actAs(operator, () => each.act(scene.clients(scene.losing()))));
      expect(records.map(({ attributes }) => attributes?.["flotilla.audit.action"])).toEqual([
        each.action,
      ]);
    });

    test("are done though the SDK throws, and are exported without secrets", async () => {
      const { tasks } = scene.clients();
      const records = exported();
      await tasks.pause("mail", { reason: "leaked: Bearer abc123def456" });
      expect(records[0]!.attributes).toMatchObject({
        "flotilla.audit.reason": "leaked: Bearer [redacted]",
        "flotilla.audit.actor": "program",
      });
      logs.disable();
      exported(() => {
        throw new Error("the exporter is broken");
      });
      await tasks.resume("mail");
      expect(await scene.entries()).toHaveLength(2);
    });

    test("with one id are two if two callers have sent them, also of two tenants", async () => {
      const { tasks } = scene.clients();
      const clicked = { ...operator, actId: "click-1" };
      await actAs(clicked, () => tasks.pause("mail"));
      await actAs({ ...clicked, keyName: "other" }, () => tasks.resume("mail"));
      await actAs({ ...clicked, tenant: "other" }, () => tasks.pause("mail"));
      expect((await scene.entries()).map(({ action }) => action)).toEqual([
        "names.pause",
        "names.resume",
        "names.pause",
      ]);
    });

    test("with the id of another act are refused, and so are ids that no header carries", async () => {
      const { tasks } = scene.clients();
      const clicked = { ...operator, actId: "click-1" };
      await actAs(clicked, () => tasks.pause("mail"));
      const others: (() => Promise<unknown>)[] = [
        () => tasks.pause("order"),
        () => tasks.resume("mail"),
        () => tasks.cancel("pending"),
      ];
      for (const other of others) {
        await expect(actAs(clicked, other)).rejects.toMatchObject({ code: "conflict" });
      }
      expect(await scene.entries()).toHaveLength(1);
      for (const actId of ["", "a b", "a,", "é", "x".repeat(201)]) {
        expect(() => actAs({ ...operator, actId }, () => {})).toThrow("visible ASCII");
      }
    });

    test("at once with one id are one", async () => {
      const clicked = { ...operator, actId: "click-1" };
      const retried = Array.from({ length: 5 }, () =>
        actAs(clicked, () => scene.clients().tasks.retry("failed")),
      );
      expect(await done(Promise.all(retried))).toEqual(retried.map(() => ({ forgottenSteps: 0 })));
      const fired = Array.from({ length: 5 }, () =>
        actAs({ ...operator, actId: "click-2" }, () =>
          scene.clients().tasks.limits.set("tenant/acme", 3),
        ),
      );
      await done(Promise.all(fired));
      expect(await scene.entries()).toHaveLength(2);
    });

    test("have one id with the events of what they change", async () => {
      const { tasks, letters } = scene.clients();
      await tasks.cancel("pending");
      const [cancelled] = await scene.entries();
      const events = await tasks.events("pending");
      expect(JSON.stringify(events.at(-1)!.detail)).toContain(cancelled!.id);
      await letters.discard({ taskId: "failed" });
      const [discarded] = await scene.entries();
      expect((await tasks.events("failed")).at(-1)).toMatchObject({
        type: "discarded",
        detail: { writeId: discarded!.id },
      });
    });

    test("on many are one entry, counted with every transaction of them", async () => {
      const { queue } = scene;
      const many = 600;
      const made = await queue.enqueueMany(
        "bulk",
        Array.from({ length: many }, () => null),
      );
      expect(made).toHaveLength(many);
      const error = JSON.stringify({ code: "handler_failed", message: "boom" });
      await queue.database.write([
        sql`update ${table("task")} set status = 'failed', error = ${error} where name = 'bulk'`,
      ]);
      const counts: (number | null)[] = [];
      const { letters } = scene.clients({
        ...queue.database,
        async write(statements, options) {
          const tables = await queue.database.write(statements, options);
          counts.push(...(await scene.entries()).map(({ count }) => count));
          return tables;
        },
      });
      await letters.discard({ name: "bulk" });
      expect(counts).toEqual([250, 500, 600, 600]);
      expect(await scene.entries()).toMatchObject([{ count: many, outcome: "done" }]);
    });

    test("on many at once with one id are one entry, which counts all that they change", async () => {
      const { queue } = scene;
      const many = 600;
      await queue.enqueueMany(
        "bulk",
        Array.from({ length: many }, () => null),
      );
      const error = JSON.stringify({ code: "handler_failed", message: "boom" });
      await queue.database.write([
        sql`update ${table("task")} set status = 'failed', error = ${error} where name = 'bulk'`,
      ]);
      const { database } = queue;
      const tried = Promise.withResolvers<void>();
      const landed = Promise.withResolvers<void>();
      const ended = Promise.withResolvers<void>();
      let writes = 0;
      // Both have begun before either has written, and the second ends between two writes of the first.
      const first = scene.clients({
        ...database,
        async write(statements, options) {
          await (writes++ === 0 ? tried.promise : ended.promise);
          const tables = await database.write(statements, options);
          landed.resolve();
          return tables;
        },
      });
      const second = scene.clients({
        ...database,
        async write(statements, options) {
          tried.resolve();
          await landed.promise;
          return database.write(statements, options);
        },
      });
      const discard = ({ letters }: Clients) =>
        actAs({ ...operator, actId: "click-1" }, () => letters.discard({ name: "bulk" }));
      const [counted] = await Promise.all([
        discard(first),
        discard(second).finally(() => ended.resolve()),
      ]);
      expect(counted).toEqual({ discarded: many });
      expect(await scene.entries()).toMatchObject([{ count: many, outcome: "done" }]);
    });

    test("that are cut short say so, with what they have changed by then", async () => {
      const { queue } = scene;
      await queue.enqueueMany(
        "bulk",
        Array.from({ length: 300 }, () => null),
      );
      const error = JSON.stringify({ code: "handler_failed", message: "boom" });
      await queue.database.write([
        sql`update ${table("task")} set status = 'failed', error = ${error} where name = 'bulk'`,
      ]);
      let writes = 0;
      const { letters } = scene.clients({
        ...queue.database,
        write: (statements, options) =>
          writes++ === 0
            ? queue.database.write(statements, options)
            : Promise.reject(new Error("the process was killed")),
      });
      await expect(letters.discard({ name: "bulk" })).rejects.toThrow("killed");
      expect(await scene.entries()).toMatchObject([{ count: 250, outcome: "begun" }]);
    });

    test("of a program are those without another actor", async () => {
      await scene.clients().tasks.cancel("pending");
      expect(await scene.entries()).toMatchObject([
        { actor: "program", kind: "program", user: null, role: null, address: expect.any(String) },
      ]);
    });

    test("hold no payload, no header of an agent and no signal's content", async () => {
      for (const each of acts) {
        if (each.arrange) await inHandler(() => each.arrange!(scene.clients()));
        await actAs(operator, () => each.act(scene.clients())).catch(() => {});
      }
      const rows = await scene.queue.database.read(sql`select * from ${table("audit")}`);
      expect(rows.length).toBeGreaterThan(15);
      expect(JSON.stringify(rows)).not.toContain("canary-secret");
    });
  });
}
