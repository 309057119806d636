import crypto from "node:crypto";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { now, sql, type Statement, table } from "../../store/sql.ts";
import { hourMs } from "../../base/durations.ts";
import { createFiles, defaultFileSettings } from "../../files/files.ts";
import { createFilesLeader } from "../../files/leader.ts";
import { file } from "../../files/new-file.ts";
import type { FileRef } from "../../protocol/file.ts";
import { prune } from "../leader/prune.ts";
import { task } from "../task.ts";
import { openTasks, type TasksHarness } from "./harness.ts";

const tables = ["file", "file_part", "file_remnant", "file_reference", "file_count"] as const;
const bytesOf = (text: string) => new TextEncoder().encode(text);
const hashOf = (text: string) => crypto.hash("sha256", bytesOf(text), "hex");

/** What files of payloads and results promise on every store. */
export function filesContract(kind: StoreKind): void {
  describe(`files of tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await emptyTables(queue.store as OpenStore, tables);
    });
    afterEach(() => queue.close());

    const count = async (name: (typeof tables)[number], where: Statement = sql`1 = 1`) => {
      const [row] = await queue.database.read(
        sql`select count(*) as found from ${table(name)} where ${where}`,
      );
      return Number(row!["found"]);
    };
    /** As if everything had been stored two hours ago. */
    const age = () =>
      queue.database.write([
        sql`update ${table("file_reference")} set at = ${now} - ${2 * hourMs}`,
        sql`update ${table("file_remnant")} set began_at = ${now} - ${2 * hourMs}`,
        sql`update ${table("file")} set unused_at = ${now} - ${2 * hourMs}
          where unused_at is not null`,
      ]);
    const collect = async (passes = 1) => {
      const files = createFiles(queue);
      for (let pass = 0; pass < passes; pass++) await createFilesLeader({ ...queue, files }).pass();
    };
    /** Hours go by, and the leader has nothing left to do. */
    const hours = async () => {
      for (let passes = 0; passes < 3; passes++) {
        await age();
        await collect();
      }
    };
    const text = async (taskId: string, ref: FileRef) =>
      new TextDecoder().decode(await queue.files.read(taskId, ref));
    type Body = { doc: FileRef };

    test("a handler reads what its input refers to, and returns a file in turn", async () => {
      const shout = task<Body, Body, { loud: FileRef }>("shout", {}, async ({ input, files }) => {
        const read = new TextDecoder().decode(await files.read(input.doc));
        const streamed = await new Response(files.stream(input.doc)).text();
        expect(streamed).toBe(read);
        return { loud: file(bytesOf(read.toUpperCase()), { mediaType: "text/plain" }) };
      });
      await queue.work("a", [shout]);
      const { taskId } = await queue.client().enqueue(shout, {
        doc: file(bytesOf("hello"), { mediaType: "text/markdown", filename: "hello.md" }),
      });
      const ended = await queue.ended(taskId);
      expect(ended.payload).toEqual({
        doc: {
          type: "file",
          url: `flotilla-file:${hashOf("hello")}`,
          mediaType: "text/markdown",
          filename: "hello.md",
          size: 5,
        },
      });
      const { loud } = (ended as unknown as { result: { loud: FileRef } }).result;
      expect(loud).toEqual({
        type: "file",
        url: `flotilla-file:${hashOf("HELLO")}`,
        mediaType: "text/plain",
        size: 5,
      });
      // Nothing of it is lost while the task is kept, and nothing stays once it is pruned.
      await hours();
      expect(await text(taskId, loud)).toBe("HELLO");
      expect(await text(taskId, (ended.payload as Body).doc)).toBe("hello");
      await queue.database.write([
        sql`update ${table("task")} set created_at = 0, last_update = 0`,
      ]);
      expect(await prune(queue, { olderThanMs: hourMs })).toMatchObject({ deleted: 1 });
      expect(await count("file_reference", sql`owner_kind = 'task'`)).toBe(0);
      await hours();
      for (const name of ["file", "file_part", "file_remnant", "file_reference"] as const)
        expect(await count(name)).toBe(0);
    });

    test("goes with the last task that refers to it", async () => {
      const tasks = queue.client();
      const doc = await tasks.files.store(file(bytesOf("shared")));
      const [one, two] = await tasks.enqueueMany("read", [{ doc }, { doc }]);
      await hours();
      expect(await count("file_reference")).toBe(2);
      await queue.database.write([
        sql`update ${table("task")} set status = 'completed', created_at = 0, last_update = 0
          where task_id = ${one!.taskId}`,
      ]);
      await prune(queue, { olderThanMs: hourMs });
      await hours();
      expect(await text(two!.taskId, doc)).toBe("shared");
      await expect(text(one!.taskId, doc)).rejects.toMatchObject({ code: "not_found" });
    });

    test("many inputs, rows, graphs and keys have files", async () => {
      const tasks = queue.client();
      const stream = new Response("once").body!;
      const doc = file(stream);
      const many = await tasks.enqueueMany("read", [{ doc }, { doc }, { n: 1 }]);
      for (const { taskId } of many.slice(0, 2))
        expect(
          await text(taskId, (await queue.get(taskId).then((t) => t!.payload as Body)).doc),
        ).toBe("once");
      const { outcomes } = await tasks.enqueueEach([
        { task: "read", input: { doc: file(bytesOf("row")) } },
        { task: "read", input: { doc: { type: "file", url: `flotilla-file:${"0".repeat(64)}` } } },
        { task: "read", input: {} },
      ]);
      expect(outcomes).toMatchObject([
        { outcome: "created" },
        { outcome: "rejected", code: "not_found" },
        { outcome: "created" },
      ]);
      const graph = await tasks.enqueueGraph([
        { ref: "a", task: "read", input: { doc: file(bytesOf("a")) } },
        { ref: "b", task: "read", input: { doc: file(bytesOf("b")) }, after: ["a"] },
      ]);
      const b = (await queue.get(graph.b.taskId))!.payload as Body;
      expect(await text(graph.b.taskId, b.doc)).toBe("b");

      const keyed = await tasks.enqueue("read", { doc: file(bytesOf("first")) }, { key: "k" });
      const again = await tasks.enqueue("read", { doc: file(bytesOf("second")) }, { key: "k" });
      expect(again).toEqual({ taskId: keyed.taskId, created: false });
      expect(
        await count("file_reference", sql`owner_kind = 'task' and hash = ${hashOf("second")}`),
      ).toBe(0);
      await hours();
      expect(await count("file", sql`hash = ${hashOf("second")}`)).toBe(0);
      const first = (await queue.get(keyed.taskId))!.payload as Body;
      expect(await text(keyed.taskId, first.doc)).toBe("first");
    });

    test("a task that is replaced has the files of its new payload, and those alone", async () => {
      const tasks = queue.client();
      const options = { key: "k", onDuplicate: "replace" } as const;
      const held = await tasks.enqueue("read", { doc: file(bytesOf("one")) }, options);
      for (const each of ["two", "three"]) {
        expect(await tasks.enqueue("read", { doc: file(bytesOf(each)) }, options)).toEqual({
          taskId: held.taskId,
          created: false,
          replaced: true,
        });
      }
      await hours();
      const { doc } = (await queue.get(held.taskId))!.payload as Body;
      expect(await text(held.taskId, doc)).toBe("three");
      expect(await count("file")).toBe(1);
      await expect(
        tasks.enqueue("read", { doc: file(bytesOf("four")) }, { key: "k", onDuplicate: "reject" }),
      ).rejects.toMatchObject({ code: "duplicate_key" });
    });

    test("what only looks like a reference gives no bytes, and what it says counts for nothing", async () => {
      const tasks = queue.client();
      const secret = createFiles(queue);
      await secret.upload("default", "session-1", [bytesOf("secret")]);
      const theirs = await tasks.files.store(file(bytesOf("theirs")), { tenant: "theirs" });
      await tasks.enqueue("read", { doc: theirs }, { tenant: "theirs" });
      const forged = (value: string) => ({
        type: "file",
        url: `flotilla-file:${hashOf(value)}`,
        mediaType: "text/plain",
        size: 6,
      });
      for (const doc of [forged("secret"), forged("theirs"), theirs]) {
        await expect(tasks.enqueue("read", { doc })).rejects.toMatchObject({
          code: "not_found",
          message: expect.stringContaining("give `file(…)`") as string,
        });
      }
      // A copy of an object isn't what the store has returned.
      const mine = await tasks.files.store(file(bytesOf("mine"), { filename: "mine.txt" }));
      await expect(tasks.enqueue("read", { doc: { ...mine } })).rejects.toMatchObject({
        code: "not_found",
      });
      // Another reference to the same content lies about the rest.
      const lies = { ...mine, size: 1, mediaType: "text/html", filename: "x.html", more: 1 };
      const { taskId } = await tasks.enqueue("read", { doc: mine, lies });
      const stored = (await queue.get(taskId))!.payload as { lies: FileRef };
      expect(stored.lies).toEqual({ ...mine, more: 1 });
      // A row that was inserted by hand, and text that isn't a part.
      await queue.database.write([
        sql`insert into ${table("task")} (task_id, name, payload)
          values ('by hand', 'read', ${JSON.stringify({ doc: forged("secret") })})`,
      ]);
      await expect(queue.files.read("by hand", mine)).rejects.toMatchObject({ code: "not_found" });
      await tasks.enqueue("read", { text: `flotilla-file:${hashOf("secret")}`, type: "text" });
      expect(await count("file_reference", sql`owner_kind = 'session'`)).toBe(1);
    });

    test("code may pass on the files of its own task, and others by their task", async () => {
      const seen: string[] = [];
      const child = task<Body>("child", {}, async ({ input, files }) => {
        seen.push(new TextDecoder().decode(await files.read(input.doc)));
      });
      const parent = task<Body>("parent", {}, async ({ input, step }) => {
        await queue.client().enqueue(child, input, { key: "once" });
        await step.children("wait", [[child, input]]);
        return null;
      });
      await queue.work("a", [parent, child]);
      const { taskId } = await queue
        .client()
        .enqueue(parent, { doc: file(bytesOf("handed down")) });
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      await queue.until("both children", () => seen.length === 2);
      expect(seen).toEqual(["handed down", "handed down"]);
      const { doc } = (await queue.get(taskId))!.payload as Body;
      const tasks = queue.client();
      await expect(tasks.enqueue("later", { doc })).rejects.toMatchObject({ code: "not_found" });
      const later = await tasks.enqueue("later", { doc: file(doc, { of: { taskId } }) });
      expect(await text(later.taskId, doc)).toBe("handed down");
    });

    test("a child in another tenant gets none of the files of its parent", async () => {
      const read: unknown[] = [];
      const child = task<Body>("child", {}, async ({ input, files }) => {
        read.push(await files.read(input.doc).catch((error: { code: string }) => error.code));
      });
      const parent = task<Body>("parent", {}, async ({ input, step }) => {
        await step.children("wait", [[child, input, { tenant: "theirs" }]]);
      });
      await queue.work("a", [parent, child]);
      const { taskId } = await queue.client().enqueue(parent, { doc: file(bytesOf("ours")) });
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(read).toEqual(["not_found"]);
      expect(await count("file_reference", sql`owner_kind = 'task'`)).toBe(1);
    });

    test("retries, and the task that follows a failure, have the same file", async () => {
      const seen: string[] = [];
      let followed: string | undefined;
      const failing = task<Body>(
        "failing",
        {
          attempts: 2,
          backoff: { baseMs: 1, jitter: 0 },
          async onFailure({ input, files }) {
            const { doc } = (input as unknown as { input: Body }).input;
            followed = new TextDecoder().decode(await files.read(doc));
          },
        },
        async ({ input, files, taskId, token }) => {
          seen.push(new TextDecoder().decode(await files.read(input.doc)));
          // A result of it that was lost is nothing to the task that follows.
          await createFiles({ ...queue, of: "task" }).upload("default", taskId, [bytesOf("lost")], {
            token,
          });
          throw new Error("no");
        },
      );
      await queue.work("a", [failing]);
      await queue.client().enqueue(failing, { doc: file(bytesOf("kept")) });
      await queue.until("the follow-up", () => followed, { stepMs: 50 });
      expect(seen).toEqual(["kept", "kept"]);
      expect(followed).toBe("kept");
      expect(await count("file_reference", sql`hash = ${hashOf("lost")}`)).toBe(1);
    });

    test("a file of a result stays with the attempt that has completed the task, and with no other", async () => {
      let tries = 0;
      let release = () => {};
      const slow = task("slow", {}, async () => {
        tries++;
        if (tries === 1) await new Promise<void>((resolve) => (release = resolve));
        return { doc: file(bytesOf(`try ${tries === 1 ? "lost" : tries}`)) };
      });
      const first = await queue.work("a", [slow]);
      const { taskId } = await queue.client().enqueue("slow", null);
      await queue.until("the first try", () => tries === 1);
      await queue.database.write([
        sql`update ${table("task")} set status = 'pending', claimed_by = null,
          claim_token = claim_token + 1`,
      ]);
      const second = await queue.work("b", [slow]);
      const ended = (await queue.ended(taskId)) as unknown as { result: Body };
      // The first one ends only now, and its outcome is lost.
      tries = 1;
      release();
      await queue.until("its upload", () => count("file_reference").then((found) => found === 2));
      await hours();
      expect(await text(taskId, ended.result.doc)).toBe("try 2");
      expect(await count("file_reference")).toBe(1);
      // From here on it is one of the task, as those of the payload are.
      expect(await count("file_reference", sql`kept = 1 and token is null`)).toBe(1);
      expect(await count("file")).toBe(1);
      await Promise.all([first, second].map((worker) => worker.stop({ waitMs: 0 })));
    });

    test("while an attempt may still complete its task, the file of its result stays", async () => {
      await queue.beat("a");
      const { taskId } = await queue.client().enqueue("slow", null);
      const [claim] = await queue.claim("a", ["slow"]);
      const files = createFiles({ ...queue, of: "task" });
      const part = await files.upload("default", taskId, [bytesOf("in the outbox")], {
        token: claim!.token,
      });
      await hours();
      expect(await text(taskId, part as FileRef)).toBe("in the outbox");
      // Given up for dead, its pod may still deliver the result, until another one claims the task.
      await queue.database.write([
        sql`update ${table("task")} set status = 'pending', claimed_by = null`,
      ]);
      await hours();
      expect(await text(taskId, part as FileRef)).toBe("in the outbox");
      await queue.claim("a", ["slow"]);
      await hours();
      await expect(text(taskId, part as FileRef)).rejects.toMatchObject({ code: "not_found" });
    });

    test("an attempt that comes late with the same file takes it from no other", async () => {
      await queue.beat("a");
      const { taskId } = await queue.client().enqueue("slow", null);
      const [late] = await queue.claim("a", ["slow"]);
      await queue.database.write([
        sql`update ${table("task")} set status = 'pending', claimed_by = null`,
      ]);
      const [claim] = await queue.claim("a", ["slow"]);
      expect(claim!.token).toBeGreaterThan(late!.token);
      const files = createFiles({ ...queue, of: "task" });
      const uploaded = ({ token }: { token: number }) =>
        files.upload("default", taskId, [bytesOf("the same")], { token });
      const part = await uploaded(claim!);
      await queue.database.write([
        sql`update ${table("task")} set status = 'completed', result = '{}'`,
      ]);
      await uploaded(late!);
      await hours();
      expect(await text(taskId, part as FileRef)).toBe("the same");
    });

    test("what was stored for a task that never came is gone after an hour", async () => {
      const tasks = queue.client();
      const doc = await tasks.files.store(file(bytesOf("forgotten")));
      await collect();
      expect(await count("file")).toBe(1);
      await hours();
      expect(await count("file")).toBe(0);
      expect(await count("file_part")).toBe(0);
      await expect(tasks.enqueue("read", { doc })).rejects.toMatchObject({ code: "not_found" });
    });

    test("a file that is collected while its task is on the way stores no task, nor others with it", async () => {
      const doc = await queue.client().files.store(file(bytesOf("late")));
      // The process is paused for hours between its look at the file and the insert.
      const paused = before(queue.database, "task", hours);
      const tasks = queue.client({ database: paused });
      await expect(tasks.enqueueMany("read", [{ doc }, { n: 1 }])).rejects.toMatchObject({
        code: "not_found",
        message: expect.stringContaining("store it again") as string,
      });
      expect(await queue.count()).toBe(0);
      const keyed = before(queue.database, "task", hours);
      const more = await queue.client().files.store(file(bytesOf("later")));
      await expect(
        queue
          .client({ database: keyed })
          .enqueue("read", { doc: more }, { key: "k", onDuplicate: "replace" }),
      ).rejects.toMatchObject({ code: "not_found" });
      expect(await queue.count()).toBe(0);
      // Nor does one replace the payload of another.
      const replacing = { key: "k", onDuplicate: "replace" } as const;
      const held = await queue.client().enqueue("read", { doc: file(bytesOf("held")) }, replacing);
      const newer = await queue.client().files.store(file(bytesOf("newer")));
      const late = queue.client({ database: before(queue.database, "task", hours) });
      await expect(late.enqueue("read", { doc: newer }, replacing)).rejects.toMatchObject({
        code: "not_found",
      });
      const { doc: kept } = (await queue.get(held.taskId))!.payload as Body;
      expect(await text(held.taskId, kept)).toBe("held");
    });

    test("is never collected while an enqueue refers to it, whichever comes first", async () => {
      const tasks = queue.client();
      const doc = await tasks.files.store(file(bytesOf("raced")));
      await age();
      // The collector has found the upload to be old; the task comes before it deletes that.
      let enqueued: { taskId: string } | undefined;
      const between = before(queue.database, "file_reference", async () => {
        enqueued = await tasks.enqueue("read", { doc });
      });
      const files = createFiles(queue);
      await createFilesLeader({ ...queue, database: between, files }).pass();
      await hours();
      expect(await text(enqueued!.taskId, doc)).toBe("raced");
    });

    test("references of tasks that SQL has deleted are found", async () => {
      const { taskId } = await queue.client().enqueue("read", { doc: file(bytesOf("orphan")) });
      const kept = await queue.client().enqueue("read", { doc: file(bytesOf("kept")) });
      await queue.database.write([sql`delete from ${table("task")} where task_id = ${taskId}`]);
      await hours();
      expect(await count("file")).toBe(1);
      const { doc } = (await queue.get(kept.taskId))!.payload as Body;
      expect(await text(kept.taskId, doc)).toBe("kept");
    });

    test("a task has only so many files, and a tenant so many bytes", async () => {
      const small = { ...defaultFileSettings, taskFiles: 2, taskBytes: 20, tenantBytes: 30 };
      const tasks = queue.client({ fileSettings: small });
      const docs = (...texts: string[]) => ({ docs: texts.map((each) => file(bytesOf(each))) });
      for (const body of [docs("a", "b", "c"), docs("0123456789", "0123456789abc")]) {
        await expect(tasks.enqueue("read", body)).rejects.toMatchObject({
          code: "quota_exceeded",
          details: { taskFiles: 2, taskBytes: 20 },
        });
      }
      await expect(tasks.enqueue("read", docs("x".repeat(20)))).rejects.toMatchObject({
        code: "quota_exceeded",
        details: { tenantBytes: 30 },
      });
      expect(await queue.count()).toBe(0);
      await hours();
      await tasks.enqueue("read", docs("a", "b"));
    });

    test("a new file is refused where nothing would store it, with what to do", async () => {
      const doc = file(bytesOf("x"));
      const inStep = task("step", {}, async ({ step, files }) => {
        await expect(step("a", async () => ({ doc }))).rejects.toThrow("store it first");
        const stored = await step("b", () => files.store(file(bytesOf("of a step"))));
        return { stored };
      });
      await queue.work("a", [inStep]);
      const { taskId } = await queue.client().enqueue("step", null);
      const ended = (await queue.ended(taskId)) as unknown as { result: { stored: FileRef } };
      await hours();
      expect(await text(taskId, ended.result.stored)).toBe("of a step");
      await expect(queue.client().signal(taskId, "go", { doc })).rejects.toThrow("store it first");
      await expect(queue.client().enqueue("read", { doc }, { tx: {} })).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringContaining("tasks.files.store") as string,
      });
    });
  });
}

/** The same database, where something happens right before the first write to a table. */
function before(database: Database, name: string, act: () => Promise<unknown>): Database {
  let done = false;
  return {
    ...database,
    async write(statements, options) {
      if (!done && JSON.stringify(statements).includes(`"table":"${name}"`)) {
        done = true;
        await act();
      }
      return database.write(statements, options);
    },
  };
}
