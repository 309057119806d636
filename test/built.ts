import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = join(root, ".built");
const dist = join(folder, "dist");

/**
 * Processes that tests start run what is published, bundled anew at the beginning of every run: from
 * source, each would load hundreds of files before it does anything.
 */
export const built = {
  folder,
  /** The command, for Node to run. */
  command: join(dist, "cli.js"),
  /** What a program or a config in some folder imports as `flotilla`. */
  index: join(dist, "index.js"),
  /** What it imports as `flotilla/durable`. */
  durable: join(dist, "durable.js"),
  /** The examples, which find this build by the package's name. */
  examples: join(folder, "examples"),
  /** A program of the tests, whose name ends in `-process.ts`, bundled with what it is about. */
  program: (source: string): string => join(dist, relative(root, source).replace(/\.ts$/, ".js")),
};
