import process from "node:process";
import type { TestProject } from "vitest/node";
import { getParts, missing, type PartName, parts } from "./parts.ts";

/** What traces of system calls, network namespaces and units of systemd need, which only Linux has. */
const onLinux = (...names: PartName[]) => (process.platform === "linux" ? names : []);

/** What the tests of each project need. */
const neededBy: Readonly<Record<string, readonly PartName[]>> = {
  unit: [],
  stores: ["postgres", "pgbouncer", "faketime", "openssl"],
  process: ["postgres", "sqlite", "nats", ...onLinux("strace", "systemd")],
  own: ["postgres", "chromium", "nats"],
  browser: ["postgres", "chromium"],
  crash: ["postgres", "faketime"],
  "crash-alone": ["postgres", "faketime", "nats", ...onLinux("ip", "nft")],
};

/** A server that is named needn't be installed. */
const isWanted = (name: PartName) => name !== "postgres" || !process.env["FLOTILLA_TEST_POSTGRES"];

const run = globalThis as { flotillaParts?: { failure: string | undefined } };

/** Gets what all projects of the run need before the first test, and ends the run where that fails. */
export default function setup({ name, vitest }: TestProject): void {
  const needed = (project: string) =>
    (neededBy[project] ?? []).filter(isWanted).map((each) => parts[each]);
  // Units need nothing, so that a run of them alone gets nothing.
  if (needed(name).length === 0) return;
  const ofAll = vitest.projects.flatMap((project) => needed(project.name));
  run.flotillaParts ??= { failure: getParts([...new Set(ofAll)]) };
  const absent = needed(name).filter((each) => each.find() === undefined);
  // A server comes from npm as well.
  const isFatal = absent.some((each) => each !== parts.postgres);
  if (isFatal) throw missing(absent, run.flotillaParts.failure);
}
