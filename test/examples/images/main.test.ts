import { execFile } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { built } from "../../built.ts";
import { temporaryFolder } from "./places.ts";

const main = join(built.examples, "images/main.ts");

test("the example runs from beginning to end, and again over what it has left", async () => {
  const cwd = temporaryFolder();
  const run = async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [main], {
      cwd,
      timeout: 150_000,
    });
    return stdout;
  };
  const first = await run();
  // Downloads run at once, so their order among themselves is open.
  expect(first).toContain("download completed: check complete, download error, download error,");
  expect(first).toContain("  download completed: check complete, tidy complete\n");
  expect(first).toContain("  demo/sample:1 is active, with version 1 in it\n");
  expect(first).toContain("  demo/sample:2 is active, with version 2 in it\n");
  expect(first).toContain("  download failed: ");
  expect(first).toContain('escape: the path "../../etc/cron.d/evil" leads upwards\n');
  expect(first).toContain("  demo/evil:1 isn't active\n");
  expect(first).toMatch(/health: 200\norphans: 0\n$/);
  const second = await run();
  expect(second).not.toContain("download completed");
  expect(second).toContain("  demo/sample:2 is active, with version 2 in it\n");
  expect(second).toMatch(/health: 200\norphans: 0\n$/);
});
