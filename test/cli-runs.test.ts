import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { silentLogger } from "../src/base/log.ts";
import { flow } from "../src/flows/flow.ts";
import type { Pod } from "../src/runtime/pod.ts";
import { connect, type Flotilla } from "../src/runtime/connect.ts";
import { startPod } from "../src/runtime/start-pod.ts";
import { built } from "./built.ts";
import { run as runIn, type Running, start as startIn } from "./command.ts";

// What the pods of these tests have, as a person's config has it.
const config = `
  import { defineConfig, flow, task } from ${JSON.stringify(built.index)};
  // Soon at first, and ever later: however late a command comes, it is still being tried again.
  const soon = { baseMs: 1, factor: 4, jitter: 0 };
  const parcel = flow("parcel", { version: 1 }).to("wrap", () => ({ wrapped: true })).end();
  const order = flow("order", { version: 1 })
    .to("reserve", ({ input }) => ({ item: input.item }))
    .to("charge", { attempts: 1_000, backoff: soon }, ({ input, attempt }) => {
      if (input.hangs) return new Promise(() => setInterval(() => {}, 1_000));
      if (input.refused) throw new Error("no credit");
      if (attempt < 2) throw new Error("try again");
    })
    .signal("approve")
    .children("parcels", () => [[parcel, 1], [parcel, 2]])
    .finally(() => {})
    .end();
  export default defineConfig({ use: [order, parcel, task("mail", {}, () => {})] });`;
const later = flow("order", { version: 2 })
  .signal("approve")
  .to("charge", () => {})
  .end();
const other = flow("order", { version: 3, removed: { charge: "check" } })
  .to("check", () => {})
  .signal("sign")
  .end();

let folder: string;
let elsewhere: string;
let store: string;
let flotilla: Flotilla;
let closing: (() => Promise<unknown>)[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-runs-"));
  elsewhere = join(folder, "elsewhere");
  mkdirSync(elsewhere);
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  store = `sqlite:${join(folder, "flotilla.db")}`;
  flotilla = connect(store);
  await flotilla.ping();
  closing = [() => flotilla.close()];
});
afterEach(async () => {
  for (const close of closing.toReversed()) await close();
  rmSync(folder, { recursive: true, force: true });
});

const run = (...args: string[]) => runIn(args, { cwd: folder });
/** As an operator does who has the database and nothing else. */
const runAlone = (...args: string[]) => runIn([...args, "--store", store], { cwd: elsewhere });
const until = (condition: () => Promise<boolean>) =>
  vi.waitFor(async () => expect(await condition()).toBe(true), { timeout: 90_000, interval: 50 });
const isDoing = (runId: string, type: string) =>
  until(async () => (await flotilla.runs.get(runId))?.doing?.type === type);
const podWith = async (...use: Parameters<typeof startPod>[0]["use"] & object): Promise<Pod> => {
  const pod = await startPod({ store, use, log: silentLogger, dataDir: false });
  closing.push(() => pod.stop());
  return pod;
};
const work = async (): Promise<Running> => {
  const running = startIn(["work"], { cwd: folder });
  closing.push(() => (running.child.kill("SIGKILL"), running.ended));
  await until(async () => running.output.stderr.includes("pod started"));
  return running;
};
const started = async (input: unknown) =>
  (await run("runs", "start", "order", JSON.stringify(input))).stdout.trim();

describe("flotilla runs", { timeout: 180_000 }, () => {
  test("starts one, shows where it stands, signals it and tells its story", async () => {
    await work();
    const start = ["runs", "start", "order", `{"item":"book"}`, "--key", "k", "--json"];
    const { runId, created } = JSON.parse((await run(...start)).stdout);
    expect(created).toBe(true);
    expect(JSON.parse((await run(...start)).stdout)).toEqual({ runId, created: false });
    await isDoing(runId, "waiting_for_signal");

    const listed = await run("runs", "list", "--flow", "order", "--status", "open");
    expect(listed.stdout).toMatch(
      new RegExp(
        `${runId}\\s+order\\s+1\\s+open\\s+approve\\s+1\\s+\\d+[sm]\\s+waits for the signal`,
      ),
    );
    const told = await run("runs", "signal", runId, "approve", `{"by":"ada"}`, "--id", "one");
    expect(told).toMatchObject({ code: 0, stdout: `sent signal approve to run ${runId}\n` });
    await until(async () => (await flotilla.runs.get(runId))?.status === "completed");

    const [{ stdout }, asJson, cancelled, resumed] = await Promise.all([
      run("runs", "show", runId),
      run("runs", "show", runId, "--json"),
      run("runs", "cancel", runId),
      run("runs", "resume", runId),
    ]);
    expect(stdout).toMatch(/^flow +order, version 1$/m);
    expect(stdout).toMatch(/^status +completed$/m);
    expect(stdout).toMatch(/^started +\d{4}-.*Z$/m);
    expect(stdout).toMatch(/^state +\{"item":"book".*"by":"ada"/m);
    const when = String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z`;
    expect(stdout).toMatch(
      new RegExp(`${when} +error +charge +attempt 1 +\\d+ ms +handler_failed: try again`),
    );
    expect(stdout).toMatch(new RegExp(`${when} +complete +charge +attempt 2 +\\d+ ms`));
    expect(stdout).toMatch(new RegExp(`${when} +finish +completed`));
    expect(stdout.match(/ {2}parcel {2}completed/g)).toHaveLength(2);
    const shown = JSON.parse(asJson.stdout);
    expect(shown).toMatchObject({ run: { runId, status: "completed" }, signals: [] });
    expect(shown.children).toHaveLength(2);
    expect(shown.history.at(-1)).toMatchObject({ type: "finish" });
    expect([cancelled.code, resumed.code]).toEqual([4, 4]);
  });

  test("shows one from the database of a pod that was killed", async () => {
    const pod = await work();
    const runId = await started({ item: "book", hangs: true });
    await until(async () => (await flotilla.runs.get(runId))?.at === "charge");
    pod.child.kill("SIGKILL");
    await pod.ended;
    await flotilla.runs.signal(runId, "approve", 1, { id: "early" });
    const { code, stdout } = await runAlone("runs", "show", runId);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^at +charge$/m);
    expect(stdout).toMatch(/^attempt +1$/m);
    expect(stdout).toMatch(/^doing +running for \w+ on /m);
    expect(stdout).toMatch(/^since +\d{4}-.*Z$/m);
    expect(stdout).toMatch(/^state +\{"item":"book"\}$/m);
    expect(stdout).toMatch(/complete +reserve +attempt 1/);
    expect(stdout).toMatch(/approve +early/);
  });

  test("cancels one, and lets it go on from where it stopped", async () => {
    await work();
    const runId = await started({ item: "book" });
    await isDoing(runId, "waiting_for_signal");
    expect((await run("runs", "cancel", runId)).stdout).toContain("will be cancelled");
    await until(async () => (await flotilla.runs.get(runId))?.status === "cancelled");
    const resumed = await run("runs", "resume", runId);
    expect(resumed.stdout).toBe(`run ${runId} resumes at approve\n`);
    await isDoing(runId, "waiting_for_signal");
  });

  test("says what is a flow and what is a task", async () => {
    const [task, mail, odd, wrong] = await Promise.all([
      run("enqueue", "order", "{}"),
      run("runs", "start", "mail"),
      run("runs", "start", "ordr", "{}"),
      run("runs", "show", "nobody"),
    ]);
    expect(task.code).toBe(2);
    expect(task.stderr).toContain("order is a flow: use `flotilla runs start order`");
    expect(mail.code).toBe(2);
    expect(mail.stderr).toContain("mail is a task and no flow: use `flotilla enqueue mail`");
    expect(odd.stderr).toContain(`did you mean "order"? The run is started anyway`);
    expect(odd.stderr).toContain('no pod that is up works on "ordr"');
    expect(wrong.code).toBe(4);
    const runId = odd.stdout.trim();
    expect((await run("runs", "list")).stdout).toMatch(
      new RegExp(`${runId} .*ready to run, no worker$`, "m"),
    );
  });
});

describe("flotilla flows", { timeout: 180_000 }, () => {
  test("draws machines where a config has them, and else what the store tells", async () => {
    expect((await runAlone("flows")).stdout).toBe("no flows\n");
    await work();
    const runId = await started({ item: "book" });
    await isDoing(runId, "waiting_for_signal");
    const refused = await started({ refused: true });
    await until(async () => (await flotilla.runs.get(refused))!.attempt > 6);
    const [{ stdout }, alone, asJson, misspelt] = await Promise.all([
      run("flows", "order"),
      runAlone("flows"),
      run("flows", "--json"),
      run("flows", "odrer"),
    ]);
    expect(stdout).toMatch(/^order, version 1$/m);
    expect(stdout).toMatch(/├─ approve +waits for a signal +1 waiting/);
    expect(stdout).toMatch(/^workers: version 1 on 1 pod$/m);
    const story = `1 run at charge: retrying, at attempt \\d+: no credit \\(${refused}\\)`;
    expect(stdout).toMatch(new RegExp(`stuck +${story}`));
    expect(stdout).toContain(`flotilla runs show ${refused}`);
    expect(alone.stdout).toMatch(/^order {2}\(not in the config, so its parts are unknown\)$/m);
    expect(alone.stdout).toMatch(/^ {2}approve {2}1 waiting$/m);
    const { flows } = JSON.parse(asJson.stdout);
    expect(flows).toMatchObject([
      { flow: "order", machine: { version: 1 }, places: { approve: { waiting: 1 } } },
      { flow: "parcel", workers: [{ version: 1, pods: 1 }] },
    ]);
    expect(misspelt.code).toBe(4);
  });

  test("says which version no pod has, and how an older one gets its runs", async () => {
    const { runId } = await flotilla.runs.start(later, null);
    const second = await podWith(later);
    await isDoing(runId, "waiting_for_signal");
    await second.stop();
    await work();
    const [{ stdout }, shown, task] = await Promise.all([
      run("flows", "order"),
      run("runs", "show", runId),
      run("tasks", "show", runId),
    ]);
    expect(stdout).toContain("no worker for version 2");
    expect(stdout).toContain("start a pod that has version 2 or a later one of order");
    expect(stdout).toContain(`flotilla runs resume ${runId} --as 1`);
    expect(shown.stdout).toMatch(/^doing +waits for the signal.*, no worker for version 2$/m);
    expect(task.stdout).toMatch(/^status +pending \(no worker for version 2/m);
    await run("runs", "resume", runId, "--as", "1");
    expect((await run("runs", "show", runId)).stdout).not.toContain("no worker");
    expect((await run("flows", "order")).stdout).not.toContain("stuck");
  });

  test("says which were set aside, and why", async () => {
    const { runId } = await flotilla.runs.start(later, null);
    const second = await podWith(later);
    await isDoing(runId, "waiting_for_signal");
    await second.stop();
    await podWith(other);
    await flotilla.runs.signal(runId, "approve");
    await isDoing(runId, "set_aside");
    const { stdout } = await runAlone("flows", "order");
    expect(stdout).toMatch(/1 run at approve .*set aside: it stands at "approve"/);
    expect(stdout).toContain(`flotilla runs resume ${runId}`);
    const listed = await runAlone("runs", "list", "--set-aside");
    expect(listed.stdout).toMatch(/set aside by version 3/);
  });
});
