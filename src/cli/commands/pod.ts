import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { natsConfigIn } from "../../bus/nats/config.ts";
import { configFile } from "../config-file.ts";
import { type PodFlags, type ServerFlags, withPod, withServer } from "../flags.ts";
import { printNotice } from "../output.ts";
import type { PodCommandOptions } from "../run-pod.ts";
import { loadSettings } from "../settings.ts";

/** The config, log and streams of the server of `dev --nats`. */
const devFolder = ".flotilla/nats";

export function devCommand(program: Command): void {
  withServer(program.command("dev"))
    .option(
      "--nats",
      "keep the logs of sessions on a NATS server that is started here, in one copy, to try it",
    )
    .description("run everything in one process: claims, HTTP, and live counts")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla dev
  $ flotilla dev --config app/flotilla.config.ts --port 0
  $ flotilla dev --nats --store sqlite:nats.db`,
    )
    .action(async (flags: ServerFlags & { nats?: true }) => {
      const settings = await loadSettings(flags);
      if (configFile(flags.config) === undefined) {
        printNotice(
          `there is no config (flotilla.config.ts) in ${process.cwd()}, so no tasks are run: write one, or pass --config`,
        );
      }
      const options = { settings, flags, work: true, serve: true, live: true };
      return flags.nats ? runWithNats(options) : runUntilSignal(options);
    });
}

/** Runs with a NATS server of its own, which ends with it. */
async function runWithNats(options: PodCommandOptions): Promise<void> {
  const { settings } = options;
  if (settings.nats) {
    throw new FlotillaError(
      "invalid_option",
      "--nats starts a NATS server of its own: take `nats` out of the config and FLOTILLA_NATS out of the environment, or leave out --nats",
    );
  }
  const { startDevServer } = await import("../cluster/dev-server.ts");
  const server = await startDevServer(devFolder, { clock: systemClock });
  try {
    printNotice("a NATS server on this machine keeps the logs of sessions, in one copy: to try it");
    const nats = natsConfigIn(server.nats);
    await runUntilSignal({
      ...options,
      settings: { ...settings, ...(nats && { nats }) },
      nats: server.nats,
    });
  } finally {
    await server.stop();
  }
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
