import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { describe, expect, test } from "vitest";
import { identifyProcess } from "./process.ts";

describe.runIf(process.platform === "linux")("which processes of this machine are gone", () => {
  const here = () => identifyProcess()!;

  test("is known of one that has ended, and never of one that runs", async () => {
    const file = new URL("./process.ts", import.meta.url).href;
    const script = `import(${JSON.stringify(file)}).then(({ identifyProcess }) => {
      process.stdout.write(identifyProcess().host);
      process.stdin.resume();
    })`;
    const child = spawn(process.execPath, ["-e", script], { stdio: ["pipe", "pipe", "inherit"] });
    const [said] = (await once(child.stdout, "data")) as [Buffer];
    const host = said.toString();
    expect(host).not.toBe(here().host);
    expect(here().isGone(host)).toBe(false);
    expect(here().isGone(here().host)).toBe(false);
    child.stdin.end();
    await once(child, "exit");
    expect(here().isGone(host)).toBe(true);
  });

  test("is known where another process has its number by now", () => {
    const own = JSON.parse(here().host) as Record<string, unknown>;
    expect(here().isGone(JSON.stringify({ ...own, started: "1" }))).toBe(true);
  });

  test("isn't known of other machines, of this one before it was started, or of rows without the fields", () => {
    const own = JSON.parse(here().host) as Record<string, unknown>;
    const elsewhere = { ...own, machine: "another", pid: 2 ** 30 };
    expect(here().isGone(JSON.stringify(elsewhere))).toBe(false);
    for (const said of ["", "null", "{}", "[]", '{"pid":1}'])
      expect(here().isGone(said)).toBe(false);
  });
});
