import process from "node:process";
import { type Command, InvalidArgumentError, Option } from "commander";
import { yearMs } from "../base/durations.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import { asTime } from "../base/time.ts";
import { number } from "./flags.ts";

/** Flags of commands that store a task, or a run of a flow. */
export type NewTaskFlags = {
  priority?: number;
  delayMs?: number;
  runAt?: number;
  key?: string;
  uniqueWhile?: "kept" | "unfinished";
  uniqueForMs?: number;
  after?: string[];
  afterFailed?: "fail" | "run";
  tenant?: string;
  concurrencyKey?: string;
};

export type WaitFlags = { wait?: true; timeoutMs?: number };

// JSON may escape text to several times its size; the payload's own limit is checked later.
const stdinLimitBytes = defaultMaxBytes * 256;

/** Adds the flags of a new task or run. */
export function withNewTask(command: Command, what: "task" | "run"): Command {
  return command
    .addOption(
      new Option("--priority <number>", "higher runs first, −100 to 100").argParser(
        number("--priority", { min: -100, max: 100 }),
      ),
    )
    .addOption(
      new Option("--delay-ms <ms>", "the delay before it may run").argParser(
        number("--delay-ms", { min: 0, max: yearMs }),
      ),
    )
    .addOption(
      new Option("--run-at <time>", "when it may run, such as 2026-01-31T08:00:00Z").argParser(
        time,
      ),
    )
    .option("--key <key>", `a unique name: the same key returns the same ${what}`)
    .addOption(
      new Option("--unique-while <state>", `how long a ${what} holds its key`).choices([
        "kept",
        "unfinished",
      ]),
    )
    .addOption(
      new Option(
        "--unique-for-ms <ms>",
        `the key is free again this long after its ${what} was created`,
      ).argParser(number("--unique-for-ms", { min: 1, max: yearMs })),
    )
    .option("--after <ids...>", "tasks or runs that must have completed before it runs")
    .addOption(
      new Option("--after-failed <what>", "what to do if one of them fails").choices([
        "fail",
        "run",
      ]),
    )
    .option("--tenant <tenant>", `the tenant of the ${what}`)
    .option("--concurrency-key <key>", "the key that its concurrency limit counts by");
}

export function withWait(command: Command): Command {
  return command
    .option("--wait", "wait for the result and print it")
    .addOption(
      new Option("--timeout-ms <ms>", "how long --wait waits").argParser(
        number("--timeout-ms", { min: 1, max: yearMs }),
      ),
    );
}

/** Parses JSON from the argument, or from standard input for `-`; null where there is none. */
export async function parseInput(argument: string | undefined): Promise<unknown> {
  if (argument === undefined) return null;
  const text = argument === "-" ? await readStdin() : argument;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FlotillaError(
      "invalid_option",
      `${argument === "-" ? "standard input" : "the payload"} isn't JSON: quote it for the shell, as in '{"to":"ada"}'`,
      { cause: error },
    );
  }
}

/** The trace context of the calling program, from its environment. */
export function traceOfCaller(): {
  traceparent: string | undefined;
  tracestate: string | undefined;
} {
  const { TRACEPARENT: traceparent, TRACESTATE: tracestate } = process.env;
  return { traceparent, tracestate };
}

function time(text: string): number {
  try {
    return asTime(/^\d+$/.test(text) ? Number(text) : text);
  } catch (error) {
    throw new InvalidArgumentError(messageOf(error));
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
