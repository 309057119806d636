import process from "node:process";
import { exitCodeOf, explain } from "./exit-codes.ts";
import { createProgram } from "./program.ts";

// `flotilla tasks list | head` closes the pipe early, which is no error.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    process.exit(error.code === "EPIPE" ? process.exitCode : 1);
  });
}

try {
  await createProgram().parseAsync(process.argv);
} catch (error) {
  explain(error, { json: process.argv.includes("--json") });
  process.exitCode = exitCodeOf(error);
}
// Handles that the user's config has opened, or a handler that never settles, would keep the process
// alive after the command is done.
process.stdout.write("", () => process.exit());
