import process from "node:process";
import { type Command, Option } from "commander";
import { FlotillaError } from "../../base/errors.ts";
import { defaultMaxBytes } from "../../base/json.ts";
import { nearest } from "../../base/options.ts";
import type { TaskContract, TaskHandler } from "../../queue/task.ts";
import { resolveConfig } from "../../runtime/config.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { onStore } from "../connection.ts";
import { number, type StoreFlags, withJson, withStore } from "../flags.ts";
import { print, printJson } from "../output.ts";
import { loadConfig } from "../settings.ts";

type Flags = StoreFlags & {
  json?: true;
  wait?: true;
  timeoutMs?: number;
  priority?: number;
  delayMs?: number;
  key?: string;
  attempts?: number;
  tenant?: string;
};

const yearMs = 366 * 24 * 60 * 60_000;
// Room for text that is escaped to several times its size; the payload's own limit comes after.
const stdinLimitBytes = defaultMaxBytes * 256;

export function enqueueCommand(program: Command): void {
  withJson(withStore(program.command("enqueue <name> [json]").description("store a task")))
    .addOption(
      new Option("--priority <number>", "higher runs first, −100 to 100").argParser(
        number("--priority", { min: -100, max: 100 }),
      ),
    )
    .addOption(
      new Option("--delay-ms <ms>", "how long before it may run").argParser(
        number("--delay-ms", { min: 0, max: yearMs }),
      ),
    )
    .option("--key <key>", "a name of its own: the same key gives the same task")
    .addOption(
      new Option("--attempts <number>", "how often it is tried").argParser(
        number("--attempts", { min: 1, max: 1_000 }),
      ),
    )
    .option("--tenant <tenant>", "whose task it is")
    .option("--wait", "wait for the result and print it")
    .addOption(
      new Option("--timeout-ms <ms>", "how long --wait waits").argParser(
        number("--timeout-ms", { min: 1, max: yearMs }),
      ),
    )
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla enqueue mail '{"to":"ada"}'
  $ cat input.json | flotilla enqueue mail -
  $ flotilla enqueue summarize '{"url":"https://example.com"}' --key example --wait`,
    )
    .action(enqueue);
}

async function enqueue(name: string, given: string | undefined, flags: Flags): Promise<void> {
  const { json, wait, timeoutMs, config, store, ...options } = flags;
  const input = await parseInput(given);
  // The config's handler brings the schema, so that a bad payload is refused here.
  const { use, maxPayloadBytes } = resolveConfig(await loadConfig(config));
  const schema = use.find((handler) => handler.name === name)?.input;
  const task: TaskContract = { name, input: schema, output: undefined };
  if (!json) hintAt(name, use);
  const where = { ...(config && { config }), ...(store && { store }) };
  const work = async (flotilla: Flotilla): Promise<void> => {
    // What called this command may be traced, and passes its context on as programs do.
    const { TRACEPARENT: traceparent, TRACESTATE: tracestate } = process.env;
    const trace = { traceparent, tracestate };
    const { taskId, created } = await flotilla.enqueue(task, input, { ...options, trace });
    if (!json) print(taskId);
    if (!wait) {
      if (json) printJson({ taskId, created });
      return;
    }
    const result = await flotilla.waitFor(taskId, {
      ...(timeoutMs !== undefined && { timeoutMs }),
    });
    printJson(json ? { taskId, created, result } : result);
  };
  await onStore(where, work, { maxPayloadBytes });
}

/** A name that only looks wrong is still stored: its handler may be in another program. */
function hintAt(name: string, use: readonly TaskHandler[]): void {
  const names = use.map((handler) => handler.name);
  const meant = names.includes(name) ? undefined : nearest(name, names);
  if (meant === undefined) return;
  process.stderr.write(`flotilla: the config has no handler "${name}"; did you mean "${meant}"?\n`);
}

async function parseInput(given: string | undefined): Promise<unknown> {
  if (given === undefined) return null;
  const text = given === "-" ? await readStdin() : given;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FlotillaError(
      "invalid_option",
      `${given === "-" ? "standard input" : "the payload"} isn't JSON: quote it for the shell, as in '{"to":"ada"}'`,
      { cause: error },
    );
  }
}

async function readStdin(): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > stdinLimitBytes) {
      throw new FlotillaError(
        "payload_too_large",
        `standard input holds more than ${stdinLimitBytes} bytes`,
      );
    }
  }
  return Buffer.concat(chunks).toString("utf8");
}
