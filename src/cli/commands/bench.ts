import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import { FlotillaError } from "../../base/errors.ts";
import { packageFile } from "../../base/package-files.ts";

export function benchCommand(program: Command): void {
  program
    .command("bench [args...]")
    .description("run the benchmarks of this checkout, with the arguments of `npm run bench`")
    .helpOption(false)
    .allowUnknownOption()
    .passThroughOptions()
    .action(bench);
}

async function bench(args: string[]): Promise<void> {
  const script = fileURLToPath(packageFile("bench/run.ts"));
  if (!existsSync(script)) {
    throw new FlotillaError(
      "unsupported",
      "the benchmarks aren't part of the package: clone the repository, and run `npm run bench` there",
    );
  }
  const child = spawn(process.execPath, ["--conditions=flotilla:source", script, ...args], {
    stdio: "inherit",
  });
  // The terminal sends Ctrl-C to the child as well; this process only has to outlive it.
  const forward = (signal: NodeJS.Signals) => void child.kill(signal);
  process.on("SIGTERM", forward).on("SIGINT", () => {});
  process.exitCode = await new Promise<number>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
}
