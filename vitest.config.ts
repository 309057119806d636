import { mkdirSync, readdirSync, rmSync, statfsSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import FileOrder from "./test/sequence.ts";

// Tests start threads and processes by the hundred, which would compile the same files each time.
process.env["NODE_COMPILE_CACHE"] ??= fileURLToPath(
  new URL("node_modules/.cache/compiled", import.meta.url),
);

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The shape of the repository, and simulations: nothing but Node is needed for them. */
const shape = [
  "ambient",
  "layout",
  "words",
  "docs",
  "imports",
  "lazy",
  "loops",
  "promises",
  "readme",
  "statements",
  "simulation/**/*",
  "client/size",
].map((name) => `test/${name}.test.ts`);
/** Suites that run on every kind of store: without a server in `unit`, and on Postgres in `stores`. */
const onEveryStore = "{src,test}/**/*.stores.test.ts";
const onPostgres = [
  "src/**/*.postgres.test.ts",
  "src/store/postgres/**/*.test.ts",
  "test/postgres/**/*.test.ts",
];
/** Whole servers under load, each for longer than all other units of its room together. */
const slow = [
  "cli/roles",
  "client/ai-sdk/transport",
  "client/react/hooks",
  "pods/heartbeat-thread",
  "runtime/pod-facts",
  "runtime/start-pod",
  "server/admission/overload",
  "server/api/acts/bulk",
  "server/api/page-bytes",
  "server/auth/{stored-keys,signed-in}",
  "server/{canary,openapi,quotas,roles,unread}",
  "server/sign-in/sign-in",
  "store/codec/codec",
  "testing/{later,throttles}",
  "throttles/learning-loop",
].map((name) => `src/${name}.test.ts`);
const browsers = "test/browser/**/*.test.ts";
/** Each of these needs a process of its own: it traces one, or compares what one loads. */
const own = ["tracing", "consumer"].map((name) => `test/${name}/**/*.test.ts`);
const crash = "test/crash/**/*.test.ts";
/**
 * These fill the machine, count what happens in a time, or expect of a pod that it is never late: a busy
 * neighbour would look like a fault.
 */
const crashAlone = [
  "crash/flows/points",
  "crash/postgres/locks",
  "crash/postgres/many",
  "crash/postgres/network",
  "crash/postgres/quiet",
  "crash/tasks/fences",
  "crash/tasks/misbehaving",
  "crash/tasks/storm",
  "crash/tasks/within",
  "cluster/network",
  "cluster/storm",
].map((name) => `test/${name}.test.ts`);

// Of three files at a time one mostly waits, for a process, a disk or a lease. More of them only slow each
// other down: a simulation beside five others takes longer than its limit.
const maxWorkers = Math.max(3, availableParallelism());

// What is missing is seen before anything else is done.
const withoutServer = ["./test/parts-setup.ts", "./test/built-setup.ts"];
const withPostgres = [...withoutServer, "./test/postgres/setup.ts"];
// `npx vitest src/tasks` is a loop of seconds, for which Node is enough.
const watches = !["run", "list"].some((command) => process.argv.includes(command));
const postgresKinds = { FLOTILLA_TEST_KINDS: "postgres" };
// `npm run test:store` names a server.
const isNamed = process.env["FLOTILLA_TEST_STORE"] !== undefined;
const inMemory = folderInMemory();

export default defineConfig({
  resolve: {
    // Examples and tests import by package name, and get the source without a build.
    alias: [
      { find: /^flotilla$/, replacement: source("src/index.ts") },
      { find: /^flotilla\/testing$/, replacement: source("src/testing/index.ts") },
      { find: /^flotilla\/agent$/, replacement: source("src/agent/index.ts") },
      { find: /^flotilla\/dashboard$/, replacement: source("src/server/mount/index.ts") },
      { find: /^flotilla\/durable$/, replacement: source("src/durable/index.ts") },
      { find: /^flotilla\/client$/, replacement: source("src/client/index.ts") },
      { find: /^flotilla\/react$/, replacement: source("src/client/react/index.ts") },
      { find: /^flotilla\/ai-sdk$/, replacement: source("src/client/ai-sdk/index.ts") },
    ],
    conditions: ["flotilla:source"],
  },
  test: {
    pool: "forks",
    execArgv: ["--conditions=flotilla:source"],
    // A shared disk may stand still for a minute. What hangs is seen all the same.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    // What is awaited happens when the machine and its disk have time for it, and a second is little.
    expect: { poll: { timeout: 90_000 } },
    setupFiles: ["./test/fetch-setup.ts"],
    sequence: { sequencer: FileOrder },
    reporters: ["default", "./test/reporter.ts"],
    ...(watches && { project: ["unit"] }),
    projects: [
      {
        extends: true,
        test: {
          name: "own",
          globalSetup: withPostgres,
          include: own,
          // It installs 300 MB, which `npm run test:next` is for.
          exclude: process.env["FLOTILLA_NEXT"] ? [] : ["test/consumer/next.test.ts"],
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      // To start a process for each of hundreds of files, and to load the same modules in each, takes
      // longer than what most of them do there: those of the next four share processes.
      {
        extends: true,
        test: {
          name: "browser",
          globalSetup: withPostgres,
          include: [browsers],
          env: inMemory,
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "unit",
          globalSetup: withoutServer,
          include: ["src/**/*.test.ts", ...shape, onEveryStore],
          exclude: [...onPostgres, ...slow],
          env: inMemory,
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "stores",
          globalSetup: withPostgres,
          include: [onEveryStore, ...onPostgres],
          env: { ...inMemory, ...postgresKinds },
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      ...(isNamed
        ? [
            {
              extends: true as const,
              test: {
                name: "named",
                globalSetup: ["./test/built-setup.ts"],
                include: [onEveryStore],
                env: { ...inMemory, ...postgresKinds },
                isolate: false,
                // A server that is named may be far away, and may have few connections.
                fileParallelism: false,
              },
            },
          ]
        : []),
      {
        extends: true,
        test: {
          name: "process",
          globalSetup: withPostgres,
          include: ["test/**/*.test.ts", ...slow],
          exclude: [...shape, ...own, browsers, ...onPostgres, onEveryStore, crash, ...crashAlone],
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "crash",
          globalSetup: withPostgres,
          include: [crash],
          exclude: crashAlone,
          // They kill processes and mostly wait for others, so that two at a time leave each other enough.
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: "crash-alone",
          globalSetup: withPostgres,
          include: crashAlone,
          fileParallelism: false,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
});

/**
 * Where the files of suites are: in memory, if there is room, because the flushes of commits take longer
 * than the rest of most tests of SQLite. Processes that are killed, and disks that are full, have theirs
 * on the disk.
 */
function folderInMemory(): Record<string, string> {
  const memory = "/dev/shm";
  const roomBytes = 4 * 1024 ** 3;
  const dayMs = 86_400_000;
  try {
    const { bavail, bsize } = statfsSync(memory);
    if (Math.min(bavail * bsize, process.availableMemory()) < roomBytes) return {};
    const folder = join(memory, "flotilla-tests");
    mkdirSync(folder, { recursive: true });
    // What a run that was killed has left.
    for (const name of readdirSync(folder)) {
      const path = join(folder, name);
      const found = statSync(path, { throwIfNoEntry: false });
      if (found && Date.now() - found.mtimeMs > dayMs)
        rmSync(path, { recursive: true, force: true });
    }
    return { TMPDIR: folder };
  } catch {
    // There is none on this machine.
    return {};
  }
}
