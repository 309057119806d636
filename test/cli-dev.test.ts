import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { built } from "./built.ts";
import { run as runIn, type Running, start } from "./command.ts";

const config = `
  import { agent, defineConfig, task } from ${JSON.stringify(built.index)};
  const echo = agent("echo", ({ messages }) => "You said " + messages.at(-1).parts[0].text);
  const mail = task("mail", {}, async ({ input }) => "to " + input.to);
  export default defineConfig({ use: [echo, mail] });`;

let folder: string;
let dev: Running;
const run = (args: string[], stdin = "") => runIn(args, { cwd: folder, stdin });
const announced = () => join(folder, ".flotilla", "dev.json");
const startDev = async (): Promise<string> => {
  const flags = ["--config", "app/flotilla.config.mjs", "--store", "sqlite:app/other.db"];
  dev = start(["dev", "--port", "0", ...flags], { cwd: folder });
  await vi.waitUntil(() => existsSync(announced()), { timeout: 90_000 });
  return (JSON.parse(readFileSync(announced(), "utf8")) as { url: string }).url;
};

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-dev-"));
  mkdirSync(join(folder, "app"));
  writeFileSync(join(folder, "app", "flotilla.config.mjs"), config);
});
afterAll(async () => {
  dev?.child.kill("SIGKILL");
  await dev?.ended;
  rmSync(folder, { recursive: true, force: true });
});

describe("commands beside a running dev", () => {
  test("find its store and its config without a flag, and its server by URL", async () => {
    const url = await startDev();
    expect(statSync(announced()).mode & 0o777).toBe(0o600);
    for (const flags of [[], ["--url", url], ["--store", "sqlite:app/other.db"]]) {
      const sent = await run(["enqueue", "mail", `{"to":"ada"}`, "--wait", "--json", ...flags]);
      const notice = `flotilla: using the store of \`flotilla dev\` (pid ${dev.child.pid})\n`;
      expect(sent).toMatchObject({ code: 0, stderr: flags.length === 0 ? notice : "" });
      const { taskId, result } = JSON.parse(sent.stdout) as { taskId: string; result: string };
      expect(result).toBe("to ada");
      expect((await run(["tasks", "list", ...flags])).stdout).toContain(taskId);
      const chat = await run(["chat", "--agent", "echo", "--user", "ada", ...flags], "hello\n");
      expect(chat).toMatchObject({ code: 0, stdout: "ada: hello\necho: You said hello\n" });
      expect((await run(["sessions", ...flags])).stdout).toMatch(/echo +ada +idle/);
    }
    // The hint comes from the handlers of the config that dev runs with.
    expect((await run(["enqueue", "mial"])).stderr).toContain(`did you mean "mail"?`);
  });

  test("use the store of the environment before that of dev, and that before DATABASE_URL", async () => {
    const other = `sqlite:${join(folder, "none.db")}`;
    const runWith = (env: Record<string, string>) => runIn(["tasks"], { cwd: folder, env });
    const own = await runWith({ FLOTILLA_STORE: other });
    expect(own).toMatchObject({ code: 3, stderr: expect.stringContaining("none.db") });
    expect(own.stderr).not.toContain("using the store");
    expect(await runWith({ DATABASE_URL: other })).toMatchObject({
      code: 0,
      stderr: expect.stringContaining("using the store of `flotilla dev`"),
    });
  });

  test("find the first of two, also once the second has stopped", async () => {
    const first = readFileSync(announced(), "utf8");
    const second = start(["dev", "--port", "0", "--store", "sqlite:second.db"], { cwd: folder });
    await vi.waitUntil(() => second.output.stderr.includes("another `flotilla dev`"), {
      timeout: 90_000,
    });
    expect(readFileSync(announced(), "utf8")).toBe(first);
    second.child.kill("SIGTERM");
    expect(await second.ended).toMatchObject({ code: 0 });
    expect(readFileSync(announced(), "utf8")).toBe(first);
  });

  test("don't find one that has stopped, or was killed", async () => {
    dev.child.kill("SIGTERM");
    expect(await dev.ended).toMatchObject({ code: 0 });
    expect(existsSync(join(folder, ".flotilla"))).toBe(false);
    expect((await run(["tasks"])).code).toBe(3);
    await startDev();
    expect((await run(["tasks"])).code).toBe(0);
    dev.child.kill("SIGKILL");
    await dev.ended;
    expect(existsSync(announced())).toBe(true);
    expect((await run(["tasks"])).code).toBe(3);
  });
});
