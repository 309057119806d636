import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { connect } from "flotilla";
import { expect, onTestFinished, test } from "vitest";
import { built } from "../../built.ts";
import { until } from "../until.ts";

const script = fileURLToPath(new URL("./progress-process.ts", import.meta.url));

test("what a task has saved on its machine survives a kill: the next attempt goes on from the last step", async () => {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-crash-progress-"));
  const children: ChildProcess[] = [];
  const store = `sqlite:${join(folder, "store.db")}`;
  const flotilla = connect(store);
  onTestFinished(async () => {
    for (const child of children) child.kill("SIGKILL");
    await flotilla.close();
    rmSync(folder, { recursive: true });
  });
  const start = () => {
    const args = [built.program(script), store, join(folder, "data")];
    const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
    children.push(child);
    const said = { text: "" };
    child.stdout.on("data", (chunk) => (said.text += chunk));
    return { child, said };
  };
  const lastSaved = (text: string) => Number(/saved (\d+)\n$/.exec(text)?.[1] ?? 0);

  await flotilla.enqueue("count", null);
  let reached = 0;
  for (let kills = 0; kills < 3; kills++) {
    const { child, said } = start();
    const aim = reached + 20;
    await until("it goes on", () => lastSaved(wholeLines(said.text)) > aim);
    const gone = new Promise((resolve) => child.once("close", resolve));
    child.kill("SIGKILL");
    await gone;
    const from = Number(/from (\d+)/.exec(said.text)![1]);
    // It may have saved one more than it came to say.
    expect(from - reached).toBeGreaterThanOrEqual(0);
    expect(from - reached).toBeLessThanOrEqual(1);
    reached = lastSaved(wholeLines(said.text));
  }
  expect(reached).toBeGreaterThan(60);
});

function wholeLines(text: string): string {
  return text.slice(0, text.lastIndexOf("\n") + 1);
}
