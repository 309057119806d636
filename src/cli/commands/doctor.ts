import process from "node:process";
import type { Command } from "commander";
import type { Check } from "../doctor/check.ts";
import { exitCodes } from "../exit-codes.ts";
import { type StoreFlags, withJson, withStore } from "../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../output.ts";
import { loadSettings } from "../settings.ts";

const styles = { ok: "green", warn: "yellow", fail: "red" } as const;

export function doctorCommand(program: Command): void {
  withJson(
    withStore(program.command("doctor").description("check the set-up; exit 1 if a check fails")),
  ).action(async (flags: StoreFlags & { json?: true }) => {
    const { store, durability, codec, nats } = await loadSettings(flags);
    const { runDoctor } = await import("../doctor/doctor.ts");
    const hasCodec = codec !== undefined;
    const checks = await runDoctor(store, durability, { hasCodec, ...(nats && { nats }) });
    const failed = checks.some((check) => check.verdict === "fail");
    if (flags.json) printJson({ ok: !failed, checks });
    else print(columns(checks.map(toRow)));
    if (failed) process.exitCode = exitCodes.error;
  });
}

function toRow({ name, verdict, message }: Check): string[] {
  return [paint(styles[verdict], verdict), name, oneLine(message, 500)];
}
