import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { built } from "../built.ts";
import { run, type Running, start } from "../command.ts";
import { startNatsCluster } from "../nats/server.ts";
import { launch, leave, openContext } from "./browser.ts";
import { counted, openChat } from "./chat-page.ts";
import { openTab, serveWithoutPod } from "./dashboard/dashboard-server.ts";
import { expectSoon } from "./expect-soon.ts";
import { builtPage } from "./page-build.ts";
import { startProxy } from "./proxy.ts";

const startMs = 120_000;
const program = built.program(join(import.meta.dirname, "script-process.ts"));

type Pod = Running & { readonly port: number };

/** A project of which nothing changes but where its data is: its config, and how its pods are started. */
async function openProject() {
  const [page, target, cluster] = await Promise.all([
    builtPage("chat"),
    temporaryDatabase(),
    startNatsCluster({ maxFileStore: "64GB" }),
  ]);
  const folder = mkdtempSync(join(tmpdir(), "flotilla-growing-"));
  const pods: Pod[] = [];
  let reached: Pod | undefined;
  const proxy = await startProxy(() => reached?.port ?? 0);
  onTestFinished(async () => {
    for (const { child } of pods) child.kill("SIGKILL");
    await Promise.all(pods.map(({ ended }) => ended));
    await proxy.close();
    await cluster.stop();
    await target.remove();
    rmSync(folder, { recursive: true, force: true });
  });
  const nats = {
    servers: cluster.urls,
    monitor: cluster.servers.map(({ monitorUrl }) => monitorUrl),
    use: "bus",
  } as const;
  const env = { PAGES: JSON.stringify({ "/chat": page }), GATES: folder };
  /** The config as it is on one machine, or with the servers that pods tell each other by. */
  const configure = (more: object): void =>
    writeFileSync(
      join(folder, "flotilla.config.mjs"),
      `import project from ${JSON.stringify(program)};
      export default { ...project, ...${JSON.stringify(more)} };`,
    );
  configure({});
  return {
    nats,
    cluster,
    proxy,
    url: `http://127.0.0.1:${proxy.port}`,
    file: `sqlite:${join(folder, "chat.db")}`,
    postgres: target.url,
    joinNats: () => configure({ nats }),
    open: (gate: string) => writeFileSync(join(folder, gate), ""),
    async serve(store: string): Promise<Pod> {
      const flags = ["serve", "--log-level", "warn", "--store", store, "--port", "0"];
      const running = start(flags, { cwd: folder, env });
      const said = await Promise.race([
        until("a pod listens", () => / on (http\S+)/.exec(running.output.stdout)?.[1], startMs),
        running.ended,
      ]);
      if (typeof said !== "string") throw new Error(`the pod ended: ${said.stderr}`);
      const pod = { ...running, port: Number(new URL(said).port) };
      pods.push(pod);
      return pod;
    },
    /** Browsers come to this pod from now on. */
    reach(pod: Pod): void {
      reached = pod;
      proxy.cut();
    },
    async promote(...args: string[]): Promise<void> {
      // A pod may stand still for longer than it is asked for. What refuses says so, and has changed nothing.
      const outcome = await until("pods answer", async () => {
        const found = await run(["promote", ...args], { cwd: folder, env });
        return /doesn't answer over NATS: try again/.test(found.stderr) ? undefined : found;
      });
      expect(outcome).toMatchObject({ code: 0 });
    },
  };
}

test("a chat that stays open shows every word once, from one file to Postgres, to a second pod, to a quorum, and over the death of a pod and a server", async () => {
  const project = await openProject();
  const browser = await launch();
  onTestFinished(() => browser.close());
  const ada = await openContext(browser);

  const alone = await project.serve(project.file);
  project.reach(alone);
  const tab = await openChat(ada.context, { url: project.url, chatId: "growing" });
  const wanted: string[] = [];
  /** Says it, and lets the rest of the answer come once something has happened in its middle. */
  const talk = async (gate: string, during: () => Promise<void>): Promise<void> => {
    const asked = `count 10\nhold ${gate}\ncount 5`;
    const words = `${wanted.length / 2}`;
    await tab.say(`say "part ${words} "\n${asked}`);
    await tab.shows(`part ${words} ${counted(10)}`);
    await during();
    project.open(gate);
    wanted.push(`say "part ${words} "\n${asked}`, `part ${words} ${counted(10)} ${counted(5)}`);
    await expectSoon(tab.texts, wanted);
    await tab.idle();
  };

  await talk("begun", async () => {});
  const promoting = project.promote("--from", project.file, "--to", project.postgres, "--wait");
  alone.child.kill("SIGTERM");
  await promoting;
  project.joinNats();
  const first = await project.serve(project.postgres);
  project.reach(first);
  let second = first;
  await talk("postgres", async () => void (second = await project.serve(project.postgres)));
  await talk("quorum", () => project.promote("--store", project.postgres, "--to", "nats"));
  const operations = await serveWithoutPod(project.postgres, { nats: project.nats });
  onTestFinished(operations.stop);
  const pods = await openTab(browser, `${operations.url}/pods`);
  /** Which logs the page shows of each pod that has some. */
  const logs = async () => {
    const rows = await pods.page.locator("li:has(.log-grid)").all();
    return Promise.all(rows.map((row) => row.locator(".log-grid > *").allTextContents()));
  };
  const all = ["0", "1", "2", "3", "4", "5", "6", "7"];
  await expectSoon(logs, (shown) => {
    expect(shown).toHaveLength(2);
    expect(shown.flat().toSorted()).toEqual(all);
  });
  await talk("killed", async () => {
    project.reach(second);
    first.child.kill("SIGKILL");
    await Promise.all([first.ended, project.cluster.servers[0]!.kill()]);
  });
  // Nothing is loaded again there: it hears that the other pod has all of them.
  await expectSoon(logs, [all]);
  await leave(pods);
  await tab.page.reload();
  await expectSoon(tab.texts, wanted);
  await leave(ada);
}, 300_000);
