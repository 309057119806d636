import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import process from "node:process";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import type { PortRange } from "./free-ports.ts";

const each = 5;

/** The ports that another process gets, and keeps while it lives. */
async function portsOfAnother(within: PortRange): Promise<number[]> {
  const module = new URL("free-ports.ts", import.meta.url).href;
  const program = `import { freePorts } from ${JSON.stringify(module)};
    for (let nth = 0; nth < ${each}; nth++) console.log(await freePorts(1, ${JSON.stringify(within)}));
    setInterval(() => {}, 1_000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const found: number[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    found.push(Number(line));
    if (found.length === each) break;
  }
  return found;
}

test("a free port is given out once, whichever process asks, though no server listens on it yet", async () => {
  // Below those that are given to servers of other tests, and few, so that two would often meet.
  const lowest = randomInt(6_000, 10_000);
  const within = { lowest, highest: lowest + 3 * each };
  const [other, another] = await Promise.all([portsOfAnother(within), portsOfAnother(within)]);
  expect(new Set([...other, ...another]).size).toBe(2 * each);
});
