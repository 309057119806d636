import { FlotillaError } from "../base/errors.ts";
import { checkIntegers, isJsonObject } from "../base/json.ts";
import { createLines } from "../base/lines.ts";
import { checkOptions } from "../base/options.ts";
import { asTime } from "../base/time.ts";
import { taskOptionNames } from "../protocol/task-options.ts";
import type { EnqueueOptions } from "../tasks/enqueue/options.ts";

/** A task as JSON: in the body of a request, or in a line of a file. */
export type JsonRow = {
  readonly name: string;
  readonly input: unknown;
  readonly options: JsonRowOptions;
};

export type JsonRowOptions = Omit<EnqueueOptions, "tx" | "trace">;

/** Parses a row. The values of its options are checked when the task is enqueued. */
export function parseRow(what: string, value: unknown, defaults: Partial<JsonRow> = {}): JsonRow {
  const row = asObject(what, value);
  checkOptions(what, row, ["name", "input", "options"]);
  const { name = defaults.name, input = null, options = {} } = row;
  if (typeof name !== "string") {
    throw new FlotillaError("invalid_input", `${what} needs \`name\`, the name of a task`);
  }
  const ownOptions = asObject("options", options);
  checkOptions("options", ownOptions, taskOptionNames);
  for (const [option, each] of Object.entries(ownOptions)) {
    if (each === null) throw new FlotillaError("invalid_option", `${option} must not be null`);
  }
  const runAt = "runAt" in ownOptions ? { runAt: asTime(ownOptions["runAt"]) } : {};
  return { name, input, options: { ...defaults.options, ...ownOptions, ...runAt } };
}

/** A line of a file, and its number from 1. */
export type NumberedLine = { readonly number: number } & (
  | { readonly text: string }
  | { readonly error: FlotillaError }
);

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Splits chunks into lines, without the empty ones. A line that is too long becomes an error. */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  { maxBytes }: { maxBytes: number },
): AsyncGenerator<NumberedLine> {
  const lines = createLines({ maxLineBytes: maxBytes, returns: false, decode });
  let number = 0;
  const numbered = function* (texts: readonly (string | null | undefined)[]) {
    for (const text of texts) {
      number++;
      if (text === undefined) yield { number, error: tooLong(number, maxBytes) };
      else if (text === null) yield { number, error: notUtf8(number) };
      else if (text.trim() !== "") yield { number, text };
    }
  };
  for await (const chunk of chunks) yield* numbered(lines.push(chunk).lines);
  yield* numbered(lines.end());
}

/** Parses the row in a line. */
export function parseLine(line: NumberedLine, defaults: Partial<JsonRow> = {}): JsonRow {
  if ("error" in line) throw line.error;
  let value: unknown;
  try {
    value = JSON.parse(line.text);
  } catch (error) {
    throw new FlotillaError("invalid_input", `line ${line.number} isn't JSON`, { cause: error });
  }
  checkIntegers(`line ${line.number}`, line.text);
  return parseRow(`line ${line.number}`, value, defaults);
}

/** Null if it isn't UTF-8. */
function decode(bytes: Uint8Array): string | null {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

function tooLong(number: number, maxBytes: number): FlotillaError {
  const message = `line ${number} is longer than ${maxBytes} bytes`;
  return new FlotillaError("payload_too_large", message, { details: { maxBytes } });
}

function notUtf8(number: number): FlotillaError {
  return new FlotillaError("invalid_input", `line ${number} isn't UTF-8`);
}

function asObject(what: string, value: unknown): Record<string, unknown> {
  if (isJsonObject(value)) return value;
  throw new FlotillaError("invalid_input", `${what} must be an object`);
}
