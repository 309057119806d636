import process from "node:process";
import { type Command, InvalidArgumentError, Option } from "commander";
import { yearMs } from "../base/durations.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { checkIntegers, defaultMaxBytes } from "../base/json.ts";
import { asTime } from "../base/time.ts";
import {
  type NewTaskOptions,
  type TaskOption,
  type TaskOptionName,
  taskOptionNames,
  taskOptions,
} from "../protocol/task-options.ts";
import { number } from "./flags.ts";

/** The options of a new task that flags give. */
export type NewTaskFlags = Omit<NewTaskOptions<number>, "after"> & { after?: string[] };

export type WaitFlags = { wait?: true; timeoutMs?: number };

// JSON may escape text to several times its size; the payload's own limit is checked later.
const stdinLimitBytes = defaultMaxBytes * 256;

/** Adds a flag for each option of a new task or run, or for those named. */
export function withTaskOptions(
  command: Command,
  what: "task" | "run",
  names: readonly TaskOptionName[] = taskOptionNames,
): Command {
  for (const name of names) {
    // The transitions of a flow have their own attempts.
    if (what === "task" || name !== "attempts") command.addOption(flagOf(name, what));
  }
  return command;
}

function flagOf(name: TaskOptionName, what: "task" | "run"): Option {
  const option: TaskOption<string> = taskOptions[name];
  const flag = flagName(name);
  const make = (value: string) => new Option(`${flag} <${value}>`, helpOf(option, what));
  switch (option.type) {
    case "number":
      return make(name.endsWith("Ms") ? "ms" : "number").argParser(number(flag, option));
    case "text":
      return make(flag.split("-").at(-1)!);
    case "choice":
      // A run can't replace another.
      return make("choice").choices(
        option.choices.filter((each) => what === "task" || each !== "replace"),
      );
    case "time":
      return make("time").argParser(time);
    case "ids":
      return make("ids...");
  }
}

function flagName(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The description of an option in the words of the help, with its range and its default. */
function helpOf(option: TaskOption, what: "task" | "run"): string {
  const [, text, byDefault] = /^(.+?)(?:\. Default `?(.+?)`?)?\.$/.exec(option.description)!;
  const notes = [
    ...(option.type === "number" && option.max < yearMs ? [`${option.min} to ${option.max}`] : []),
    ...(byDefault === undefined ? [] : [`default: ${byDefault}`]),
  ];
  const help = text!
    .replaceAll(/`(\w+)`/g, (_, name: string) => flagName(name))
    .replaceAll(/\btask\b/g, what);
  const ending = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
  return help.slice(0, 1).toLowerCase() + help.slice(1) + ending;
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
  const what = argument === "-" ? "standard input" : "the payload";
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new FlotillaError(
      "invalid_option",
      `${what} isn't JSON: quote it for the shell, as in '{"to":"ada"}'`,
      { cause: error },
    );
  }
  checkIntegers(what, text);
  return value;
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
