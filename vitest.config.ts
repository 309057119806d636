import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// These suites kill processes and measure pauses, so a busy neighbour would look like a fault.
const alone = ["crash", "simulation", "cluster", "browser"].map(
  (name) => `test/${name}/**/*.test.ts`,
);

export default defineConfig({
  resolve: {
    // Examples and tests import by package name, and get the source without a build.
    alias: [
      { find: /^flotilla$/, replacement: source("src/index.ts") },
      { find: /^flotilla\/testing$/, replacement: source("src/testing/index.ts") },
    ],
    conditions: ["flotilla:source"],
  },
  test: {
    pool: "forks",
    execArgv: ["--conditions=flotilla:source"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: ["default", "./test/reporter.ts"],
    projects: [
      {
        extends: true,
        test: {
          name: "fast",
          globalSetup: "./test/postgres/setup.ts",
          include: ["src/**/*.test.ts", "test/**/*.test.ts"],
          exclude: alone,
          maxWorkers: "100%",
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "alone",
          globalSetup: "./test/postgres/setup.ts",
          include: alone,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
