import type { Entry, Part } from "../../protocol/message.ts";
import { harmless } from "../harmless.ts";
import { oneLine } from "../output.ts";

const shortChars = 200;

/** What an entry says, for people. Everything in it was written by others. */
export function entryText(entry: Entry): string {
  if (entry.kind === "tool_result") {
    const results = entry.results?.results ?? [];
    return results.map((result) => `[result ${short(result)}]`).join("\n");
  }
  if (entry.kind === "stop") return "stopped the answer";
  return entry.parts
    .map(partText)
    .filter((each) => each !== "")
    .join("\n");
}

export function partText(part: Part): string {
  const { type } = part;
  if (type === "text") return harmless(saidIn(part));
  if (type === "reasoning") return `(thinks) ${harmless(saidIn(part))}`;
  if (type === "step-start") return "";
  if (type === "file") return `[file ${shown(part["filename"] ?? part["mediaType"] ?? "")}]`;
  if (type === "source-url") return `[source ${shown(part["url"])}]`;
  if (type === "dynamic-tool" || type.startsWith("tool-")) return toolText(part);
  const { type: _, ...rest } = part;
  return `[${shown(type)} ${short(rest)}]`;
}

export function saidIn({ text }: Part): string {
  return typeof text === "string" ? text : "";
}

function toolText(part: Part): string {
  const name = part.type === "dynamic-tool" ? part["toolName"] : part.type.slice("tool-".length);
  const input = part["input"] === undefined ? "" : ` ${short(part["input"])}`;
  const came = part["output"] ?? part["errorText"];
  const output = came === undefined ? ` (${shown(part["state"])})` : ` → ${short(came)}`;
  return `[${shown(name)}${input}${output}]`;
}

/** How an answer ended, where that needs a word. */
export function outcomeText({ outcome, error }: Entry): string {
  const why = error ? `: ${harmless(oneLine(`${error.code}: ${error.message}`, 500))}` : "";
  if (outcome === "stopped") return "(stopped)";
  if (outcome === "cut") return `(cut off${why})`;
  return outcome === "failed" ? `(failed${why})` : "";
}

function short(value: unknown): string {
  return harmless(oneLine(JSON.stringify(value) ?? "", shortChars));
}

function shown(value: unknown): string {
  return typeof value === "string" ? harmless(oneLine(value, shortChars)) : short(value);
}
