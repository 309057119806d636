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

// Room for text that is escaped to several times its size; the payload's own limit comes after.
const stdinLimitBytes = defaultMaxBytes * 256;

/** `what` it is that is stored: a task or a run. */
export function withNewTask(command: Command, what: "task" | "run"): Command {
  return command
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
    .option("--key <key>", `a name of its own: the same key gives the same ${what}`)
    .addOption(
      new Option("--unique-while <state>", `how long a ${what} holds its key`).choices([
        "kept",
        "unfinished",
      ]),
    )
    .addOption(
      new Option(
        "--unique-for-ms <ms>",
        `the key is free again so long after its ${what} was made`,
      ).argParser(number("--unique-for-ms", { min: 1, max: yearMs })),
    )
    .option("--after <ids...>", "tasks or runs that must have completed before it runs")
    .addOption(
      new Option("--after-failed <what>", "what if one of them fails").choices(["fail", "run"]),
    )
    .option("--tenant <tenant>", `whose ${what} it is`)
    .option("--concurrency-key <key>", "what it is counted with, where only so many run at once");
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

function time(text: string): number {
  try {
    return asTime(/^\d+$/.test(text) ? Number(text) : text);
  } catch (error) {
    throw new InvalidArgumentError(messageOf(error));
  }
}

/** The JSON that was given, `-` for standard input; null where nothing was. */
export async function parseInput(given: string | undefined): Promise<unknown> {
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

/** The trace of what has called this command, which is passed on as programs do. */
export function traceOfCaller(): {
  traceparent: string | undefined;
  tracestate: string | undefined;
} {
  const { TRACEPARENT: traceparent, TRACESTATE: tracestate } = process.env;
  return { traceparent, tracestate };
}
