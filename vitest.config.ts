import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import LongestFirst from "./test/sequence.ts";

// Tests start threads and processes by the hundred, which would compile the same files each time.
process.env["NODE_COMPILE_CACHE"] ??= fileURLToPath(
  new URL("node_modules/.cache/compiled", import.meta.url),
);

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// These are about what belongs to a whole process, such as what traces it, or fill one by themselves.
const apart = ["tracing", "consumer", "browser"].map((name) => `test/${name}/**/*.test.ts`);
// Of three files at a time one mostly waits, for a process, a disk or a lease.
const maxWorkers = Math.max(3, availableParallelism());
// These kill processes and mostly wait for others, so that two at a time leave each other enough.
const paired = ["test/crash/**/*.test.ts"];
// These fill the machine, count what happens in a time, or expect of a pod that it is never late: a
// busy neighbour would look like a fault.
const alone = [
  "fences",
  "flows-points",
  "misbehaving",
  "postgres/locks",
  "postgres/many",
  "postgres/quiet",
  "storm",
  "within",
].map((name) => `test/crash/${name}.test.ts`);

// What is missing is seen before anything else is done.
const setups = ["parts-setup", "built-setup", "postgres/setup"].map((name) => `./test/${name}.ts`);

export default defineConfig({
  resolve: {
    // Examples and tests import by package name, and get the source without a build.
    alias: [
      { find: /^flotilla$/, replacement: source("src/index.ts") },
      { find: /^flotilla\/testing$/, replacement: source("src/testing/index.ts") },
      { find: /^flotilla\/agent$/, replacement: source("src/agent/index.ts") },
      { find: /^flotilla\/client$/, replacement: source("src/client/index.ts") },
      { find: /^flotilla\/react$/, replacement: source("src/client/react/index.ts") },
      { find: /^flotilla\/ai-sdk$/, replacement: source("src/client/ai-sdk/index.ts") },
    ],
    conditions: ["flotilla:source"],
  },
  test: {
    pool: "forks",
    execArgv: ["--conditions=flotilla:source"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // What is awaited happens when the machine has time for it, and a second is little.
    expect: { poll: { timeout: 30_000 } },
    sequence: { sequencer: LongestFirst },
    reporters: ["default", "./test/reporter.ts"],
    projects: [
      {
        extends: true,
        test: {
          name: "fast",
          globalSetup: setups,
          include: apart,
          // It installs 300 MB, which `npm run test:next` is for.
          exclude: process.env["FLOTILLA_NEXT"] ? [] : ["test/consumer/next.test.ts"],
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "light",
          globalSetup: setups,
          include: ["src/**/*.test.ts", "test/**/*.test.ts"],
          exclude: [...paired, ...apart],
          // To start a process for each of hundreds of files, and to load the same modules in each,
          // takes longer than what most of them do there.
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "paired",
          globalSetup: setups,
          include: paired,
          exclude: alone,
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: "alone",
          globalSetup: setups,
          include: alone,
          fileParallelism: false,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
});
