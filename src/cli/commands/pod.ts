import process from "node:process";
import type { Command } from "commander";
import { FlotillaError } from "../../base/errors.ts";
import { configFile } from "../config-file.ts";
import { type PodFlags, type ServerFlags, withPod, withServer } from "../flags.ts";
import { printNotice } from "../output.ts";
import type { PodCommandOptions } from "../run-pod.ts";
import { loadSettings } from "../settings.ts";

export function devCommand(program: Command): void {
  withServer(program.command("dev"))
    .description("run everything in one process: claims, HTTP, and live counts")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla dev
  $ flotilla dev --config app/flotilla.config.ts --port 0`,
    )
    .action(async (flags: ServerFlags) => {
      const settings = await loadSettings(flags);
      if (configFile(flags.config) === undefined) {
        printNotice(
          `there is no config (flotilla.config.ts) in ${process.cwd()}, so no tasks are run: write one, or pass --config`,
        );
      }
      await runUntilSignal({ settings, flags, work: true, serve: true, live: true });
    });
}

export function workCommand(program: Command): void {
  withPod(program.command("work"))
    .description("claim and run tasks, without HTTP")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla work
  $ flotilla work --only mail,report
  $ flotilla work --slots 200 --store sqlite:/var/lib/app/flotilla.db`,
    )
    .action(async (flags: PodFlags) => {
      const settings = await loadSettings(flags);
      if (settings.use.length === 0) {
        throw new FlotillaError(
          "invalid_option",
          "there are no handlers to run: name them in `use` of flotilla.config.ts, or pass --config",
        );
      }
      await runUntilSignal({ settings, flags, work: true, serve: false, live: false });
    });
}

export function serveCommand(program: Command): void {
  withServer(program.command("serve"))
    .option("--no-work", "only HTTP: claim nothing")
    .description("serve HTTP, and claim and run tasks")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla serve --no-work --port 3000
  $ FLOTILLA_API_KEYS=$(openssl rand -hex 24) flotilla serve --host 0.0.0.0`,
    )
    .action(async (flags: ServerFlags & { work: boolean }) => {
      const settings = await loadSettings(flags);
      await runUntilSignal({ settings, flags, work: flags.work, serve: true, live: false });
    });
}

/** Loaded only here, so that short commands don't load the parts of a server. */
async function runUntilSignal(options: PodCommandOptions): Promise<void> {
  const parts = await import("../run-pod.ts");
  await parts.runUntilSignal(options);
}
