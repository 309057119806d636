import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../src/base/contract/movable-clock.ts";
import { silentLogger } from "../src/base/log.ts";
import { createClient, type SessionEvent } from "../src/client/index.ts";
import { connect } from "../src/runtime/connect.ts";
import { startPod } from "../src/runtime/start-pod.ts";
import { temporaryDatabase, temporaryFile } from "../src/store/contract/kinds.ts";
import { migrations } from "../src/store/schema.ts";
import { task } from "../src/tasks/task.ts";
import { built } from "./built.ts";
import { run, type Running, start } from "./command.ts";
import { freePort } from "./free-ports.ts";
import { kinds } from "./upgrade/places.ts";
import { dialects } from "./upgrade/plain.ts";
import { rowsOf } from "./upgrade/rows.ts";

const config = `
  import { agent, defineConfig, task } from ${JSON.stringify(built.index)};
  export default defineConfig({
    use: [
      agent("echo", ({ messages }) => "you said: " + messages.at(-1).parts[0].text),
      task("mail", {}, ({ input }) => "to " + input.to),
    ],
  });`;

let target: Awaited<ReturnType<typeof temporaryDatabase>>;
let files: ReturnType<typeof temporaryFile>;
const running: Running[] = [];

beforeEach(async () => {
  target = await temporaryDatabase();
  files = temporaryFile();
});
afterEach(async () => {
  for (const { child } of running) child.kill("SIGKILL");
  await Promise.all(running.splice(0).map(({ ended }) => ended));
  await target.remove();
  await files.remove();
});

describe("flotilla promote", () => {
  test("moves a store in use: a chat that is open goes on with the next word, and tasks that wait are done", async () => {
    const { folder } = files;
    writeFileSync(join(folder, "flotilla.config.mjs"), config);
    const port = String(await freePort());
    const serve = async (store: string): Promise<Running> => {
      const server = start(["serve", "--port", port, "--store", store], { cwd: folder });
      running.push(server);
      await until("the server", () => server.output.stdout.includes("listens on"));
      return server;
    };
    const from = `sqlite:${files.path}`;
    const first = await serve(from);
    const client = createClient({ url: `http://127.0.0.1:${port}`, user: "ada" });
    const { sessionId } = await client.sessions.create({ agent: "echo", users: ["ada"] });
    const chat = client.session(sessionId);
    const seen: SessionEvent[] = [];
    chat.on((event) => seen.push(event));
    const answered = (seq: number) =>
      until(`entry ${seq}`, () => chat.get().lastSeq === seq && chat.get().state.state === "idle");
    await chat.send("one");
    await answered(2);

    const later = ["enqueue", "mail", '{"to":"ada"}', "--delay-ms", "1000", "--json"];
    const stored = await run([...later, "--store", from], { cwd: folder });
    const { taskId } = JSON.parse(stored.stdout) as { taskId: string };
    const args = ["promote", "--from", from, "--to", target.url];
    const refused = await run(args, { cwd: folder });
    expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining("pods are up on") });
    const planned = await run([...args, "--dry-run"], { cwd: folder });
    expect(planned.stdout).toMatch(
      /^would move \d+ rows from sqlite:.*\n1 pod would have to stop/s,
    );

    const promoting = start([...args, "--wait", "--json"], { cwd: folder });
    running.push(promoting);
    first.child.kill("SIGTERM");
    const { code, stdout } = await promoting.ended;
    expect(code).toBe(0);
    const promoted = JSON.parse(stdout) as { tables: Record<string, number>; to: string };
    expect(promoted).toMatchObject({ logs: 8, tables: { task: 1, session: 1, message: 2 } });
    expect(promoted.to).not.toContain("postgres:postgres@");

    const old = await run(["stats", "--store", from], { cwd: folder });
    expect(old).toMatchObject({
      code: 3,
      stderr: expect.stringContaining("was moved to postgres"),
    });
    expect(await run(["doctor", "--store", from], { cwd: folder })).toMatchObject({
      stdout: expect.stringContaining("was moved to postgres"),
    });

    await serve(target.url);
    await chat.send("two");
    await answered(4);
    const entries = seen.flatMap((event) => (event.type === "entry" ? [event.entry.seq] : []));
    expect(entries).toEqual([1, 2, 3, 4]);
    expect(seen.filter(({ type }) => type === "reset")).toEqual([]);
    await using flotilla = connect(target.url);
    expect(await flotilla.waitFor(taskId)).toBe("to ada");
    client.close();
  });

  test("reads the same on both sides, and all that waited goes on", async () => {
    const place = await kinds[0]!.empty();
    await using before = connect(place.url);
    await before.schedules.put("nightly", { name: "old", input: 1, everyMs: 86_400_000 });
    await place.exec(rowsOf(dialects["sqlite"]!, migrations.length));
    // Which pods are up is of the store that they are up on.
    await place.exec("delete from flotilla_pod");
    const read = async (flotilla: typeof before) => ({
      tasks: await flotilla.tasks.list(),
      failed: await flotilla.tasks.get("failed"),
      events: await flotilla.tasks.events("failed"),
      links: await flotilla.tasks.links("completed"),
      schedules: await flotilla.schedules.list(),
      sessions: await flotilla.sessions.list(),
      entries: await flotilla.sessions.open("talk", { user: "ada" }).entries(),
      turns: await flotilla.sessions.open("talk", { user: "ada" }).turns(),
      keys: await flotilla.keys.list(),
      audit: await flotilla.audit.list({ actor: "key/web" }),
      bulks: await flotilla.bulk.list(),
      groups: await flotilla.deadLetters.groups(),
      throttles: await flotilla.throttles.list(),
    });
    const whole = await read(before);
    await before.close();
    const args = ["promote", "--store", place.url, "--to", target.url];
    expect(await run(args, { cwd: files.folder })).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^moved \d+ rows to .*, and compared them\n/),
    });
    await using after = connect(target.url);
    expect(await read(after)).toEqual(whole);

    const double = task("old", {}, ({ input }: { input: number }) => ({ doubled: input * 2 }));
    const limits = { heartbeatMs: 100, deadAfterMs: 500, retentionMs: 3_650 * 24 * 60 * 60_000 };
    await using pod = await startPod({
      ...limits,
      use: [double],
      log: silentLogger,
      store: target.url,
    });
    const waited = ["pending", "overdue", "retrying", "poison", "claimed", "orphaned", "traced"];
    for (const taskId of waited) {
      const ended = await pod.tasks.settled(taskId, { timeoutMs: 150_000 });
      expect(ended).toMatchObject({ status: "completed", result: { doubled: 2 } });
    }
    const talk = pod.sessions.open("talk", { user: "ada" });
    expect(await talk.send("again")).toMatchObject({ seq: 2 });
    await place.remove();
  });
});
