import process from "node:process";
import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { onStore } from "../connect.ts";
import {
  listsByDefault,
  number,
  type StoreFlags,
  withJson,
  withPage,
  withStore,
} from "../flags.ts";
import { oneLine, print, printJson } from "../output.ts";
import { createScreen } from "../screen.ts";
import { stopSignals } from "../signals.ts";
import { type Earlier, earlierOf, throttleFacts, throttlesTable } from "./throttles-table.ts";

type Flags = StoreFlags & { json?: true };
type KeyFlags = Flags & { key?: string };
type ListFlags = Flags & { cursor?: string; limit: number; watch?: true };

const lookAgainMs = 1_000;

export function throttlesCommand(program: Command): void {
  const throttles = program
    .command("throttles")
    .description("look at throttles and their limits, and pin them")
    .addHelpText(
      "after",
      `
A throttle learns how many calls a downstream can take at once, for all pods together.

Examples:
  $ flotilla throttles                       what each may do now, and does
  $ flotilla throttles --watch               the same, again every second
  $ flotilla throttles show openai           with what each pod has of it
  $ flotilla throttles pin openai 10         holds the limit there
  $ flotilla throttles unpin openai          lets it be learned again`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withStore(throttles.command(words, options).description(does)));
  const key = () => new Option("--key <key>", "which of its limits, where it is keyed");

  const listed = "list throttles with their limits and what goes on now";
  const listing = command("list", listed, { isDefault: true }).option(
    "-w, --watch",
    "look again every second, until it is interrupted",
  );
  withPage(listing, 100).action(list);
  listsByDefault(throttles, listing);
  command("show <name>", "show one throttle and what each pod has of it")
    .addOption(key())
    .action(show);
  command("pin", "hold a limit where you say, so that nothing is learned; 0 stops all calls")
    .argument("<name>")
    .argument("<limit>", "0 to 100,000", number("<limit>", { min: 0, max: 100_000 }))
    .addOption(key())
    .action(pin);
  command("unpin <name>", "let a limit be learned again, from what was known before")
    .addOption(key())
    .action(unpin);
}

async function list({ json, cursor, limit, watch, ...flags }: ListFlags): Promise<void> {
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  if (watch) return onStore(flags, (flotilla) => watchAll(flotilla, options, json));
  const page = await onStore(flags, ({ throttles }) => throttles.list(options));
  if (json) return printJson(page);
  for (const line of throttlesTable(page.throttles, systemClock.now())) print(line);
  if (page.next !== null) print(`more: --cursor ${page.next}`);
}

/** Looks again and again: in place on a terminal, and elsewhere table after table. */
async function watchAll(
  { throttles }: Flotilla,
  options: { limit: number; cursor?: string },
  json: true | undefined,
): Promise<void> {
  const screen = process.stdout.isTTY && !json ? createScreen(process.stdout) : undefined;
  let earlier: Earlier | undefined;
  let stopping = false;
  const asked = stopSignals().asked.then(() => {
    stopping = true;
  });
  while (!stopping) {
    const page = await throttles.list(options);
    const nowMs = systemClock.monotonic();
    const lines = throttlesTable(page.throttles, nowMs, earlier);
    earlier = earlierOf(page.throttles, nowMs);
    if (json) printJson(page);
    else if (screen) screen.show(lines);
    else print(lines.join("\n"));
    await Promise.race([asked, pause(lookAgainMs)]);
  }
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => void systemClock.after(durationMs, resolve));
}

async function show(name: string, { key, json, ...flags }: KeyFlags): Promise<void> {
  const throttle = await onStore(flags, ({ throttles }) => throttles.get(name, keyOf(key)));
  if (!throttle) {
    throw new FlotillaError("not_found", `no pod has used a throttle ${oneLine(name, 200)} yet`);
  }
  if (json) return printJson({ throttle });
  for (const line of throttleFacts(throttle, systemClock.now())) print(line);
}

async function pin(name: string, limit: number, { key, json, ...flags }: KeyFlags): Promise<void> {
  const throttle = await onStore(flags, ({ throttles }) => throttles.pin(name, limit, keyOf(key)));
  if (json) return printJson({ throttle });
  print(`${labelOf(name, key)} is pinned: ${limit} calls at once in the whole fleet`);
}

async function unpin(name: string, { key, json, ...flags }: KeyFlags): Promise<void> {
  const throttle = await onStore(flags, ({ throttles }) => throttles.unpin(name, keyOf(key)));
  if (json) return printJson({ throttle });
  const { pinned } = throttle.settings;
  const now = pinned === null ? "is learned again" : `is held at ${pinned} by its options`;
  print(`${labelOf(name, key)} ${now}`);
}

function keyOf(key: string | undefined): { key?: string } {
  return key === undefined ? {} : { key };
}

function labelOf(name: string, key: string | undefined): string {
  return oneLine(key === undefined ? name : `${name} (${key})`, 200);
}
