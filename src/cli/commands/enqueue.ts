import process from "node:process";
import { type Command, InvalidArgumentError, Option } from "commander";
import { yearMs } from "../../base/durations.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import { defaultMaxBytes } from "../../base/json.ts";
import { nearest } from "../../base/options.ts";
import type { TaskContract } from "../../queue/task.ts";
import type { Usable } from "../../runtime/handlers.ts";
import { resolveConfig } from "../../runtime/config.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { asTime } from "../../runtime/rows.ts";
import { onStore } from "../connection.ts";
import { number, type StoreFlags, withJson, withStore } from "../flags.ts";
import { print, printJson } from "../output.ts";
import { loadConfig } from "../settings.ts";
import { enqueueFile } from "./enqueue-file.ts";

type Flags = StoreFlags & {
  json?: true;
  wait?: true;
  timeoutMs?: number;
  priority?: number;
  delayMs?: number;
  runAt?: number;
  key?: string;
  onDuplicate?: "existing" | "reject" | "replace";
  uniqueWhile?: "kept" | "unfinished";
  uniqueForMs?: number;
  file?: string;
  attempts?: number;
  after?: string[];
  afterFailed?: "fail" | "run";
  tenant?: string;
  concurrencyKey?: string;
};

// Room for text that is escaped to several times its size; the payload's own limit comes after.
const stdinLimitBytes = defaultMaxBytes * 256;

export function enqueueCommand(program: Command): void {
  withJson(
    withStore(
      program.command("enqueue [name] [json]").description("store a task, or a file of them"),
    ),
  )
    .option(
      "--file <file>",
      "store the rows of a file, one JSON object per line; - is standard input",
    )
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
    .addOption(
      new Option("--run-at <time>", "when it may run, such as 2026-01-31T08:00:00Z").argParser(
        time,
      ),
    )
    .option("--key <key>", "a name of its own: the same key gives the same task")
    .addOption(
      new Option("--on-duplicate <what>", "what to do where the key is taken").choices([
        "existing",
        "reject",
        "replace",
      ]),
    )
    .addOption(
      new Option("--unique-while <state>", "how long a task holds its key").choices([
        "kept",
        "unfinished",
      ]),
    )
    .addOption(
      new Option(
        "--unique-for-ms <ms>",
        "the key is free again so long after its task was made",
      ).argParser(number("--unique-for-ms", { min: 1, max: yearMs })),
    )
    .addOption(
      new Option("--attempts <number>", "how often it is tried").argParser(
        number("--attempts", { min: 1, max: 1_000 }),
      ),
    )
    .option("--after <ids...>", "tasks that must have completed before it runs")
    .addOption(
      new Option("--after-failed <what>", "what if one of them fails").choices(["fail", "run"]),
    )
    .option("--tenant <tenant>", "whose task it is")
    .option("--concurrency-key <key>", "what it is counted with, where only so many run at once")
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
  $ flotilla enqueue summarize '{"url":"https://example.com"}' --key example --wait
  $ flotilla enqueue --file rows.ndjson

A row of a file is { "name": …, "input": …, "options": { "key": …, "priority": … } }. What it leaves
out is taken from the command line. Rows with keys are stored once, however often the file is sent.`,
    )
    .action(enqueue);
}

async function enqueue(
  name: string | undefined,
  given: string | undefined,
  flags: Flags,
): Promise<void> {
  if (flags.file !== undefined) return fromFile(flags.file, name, given, flags);
  if (name === undefined) {
    throw new FlotillaError(
      "invalid_option",
      "which task? Name it, as in `flotilla enqueue mail`, or give `--file rows.ndjson`",
    );
  }
  const { json, wait, timeoutMs, config, store, file: _, ...options } = flags;
  const input = await parseInput(given);
  // The config's handler brings the schema, so that a bad payload is refused here.
  const { use, maxPayloadBytes } = resolveConfig(await loadConfig(config));
  const task: TaskContract = use.find((handler) => handler.name === name) ?? {
    name,
    input: undefined,
    output: undefined,
  };
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

async function fromFile(
  file: string,
  name: string | undefined,
  given: string | undefined,
  flags: Flags,
): Promise<void> {
  const vain = given !== undefined ? "a payload" : flags.key !== undefined ? "--key" : undefined;
  if (vain !== undefined || flags.wait) {
    const what = vain ?? "--wait";
    throw new FlotillaError("invalid_option", `${what} is for one task, and --file for many`);
  }
  const { json, wait: _, timeoutMs: __, config, store, file: ___, ...options } = flags;
  const { use, maxPayloadBytes } = resolveConfig(await loadConfig(config));
  const { TRACEPARENT: traceparent, TRACESTATE: tracestate } = process.env;
  const where = { ...(config && { config }), ...(store && { store }) };
  const work = (flotilla: Flotilla) =>
    enqueueFile(flotilla, {
      file,
      json: json ?? false,
      byDefault: { ...(name !== undefined && { name }), options },
      use,
      maxPayloadBytes,
      trace: { traceparent, tracestate },
    });
  await onStore(where, work, { maxPayloadBytes });
}

function time(text: string): number {
  try {
    return asTime(/^\d+$/.test(text) ? Number(text) : text);
  } catch (error) {
    throw new InvalidArgumentError(messageOf(error));
  }
}

/** A name that only looks wrong is still stored: its handler may be in another program. */
function hintAt(name: string, use: readonly Usable[]): void {
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
