import { FlotillaError } from "../base/errors.ts";
import { encodeJson } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions, checkText } from "../base/options.ts";
import type { Part, ToolResult } from "../protocol/message.ts";
import { maxAgents, maxUsers } from "./conversation/header.ts";
import type { CreateSession, SendMessage } from "./service.ts";

// Validation of input about sessions from outside, done once, at the boundary.

export const maxIdChars = 200;
/** The prefix of the ids of answers. Clients may not use it, or they could write as the agent. */
export const answerIdPrefix = "@";
export const maxParts = 1_000;
export const maxResults = 100;
export const maxMetadataBytes = 16 * 1024;

export function checkSessionId(sessionId: unknown): string {
  return checkText("the session's id", sessionId, { max: maxIdChars });
}

export function sessionNotFound(sessionId: string): FlotillaError {
  const shown = sessionId.slice(0, maxIdChars);
  return new FlotillaError("not_found", `there is no session ${shown}`, {
    details: { sessionId: shown },
  });
}

export function checkCreate(input: CreateSession): void {
  checkOptions("sessions.create", input, ["sessionId", "agents", "users", "metadata"]);
  if (input.sessionId !== undefined) checkSessionId(input.sessionId);
  checkNames("agents", input.agents, maxAgents);
  checkNames("users", input.users, maxUsers);
}

export function checkNames(what: string, names: unknown, max: number): void {
  if (names === undefined) return;
  if (!Array.isArray(names) || names.length > max) {
    throw new FlotillaError("invalid_option", `${what} must be a list of at most ${max} names`);
  }
  for (const name of names) checkText(`each of ${what}`, name, { max: maxIdChars });
  if (new Set(names).size < names.length) {
    throw new FlotillaError("invalid_option", `${what} must not name the same one twice`);
  }
}

export function checkMessage(message: SendMessage, maxBytes: number): void {
  const { id, role, author, parts, to, tokens, metadata } = message;
  if (id !== undefined) checkGivenId("the message's id", id);
  checkText("author", author, { max: maxIdChars });
  if (to !== undefined) checkText("to", to, { max: maxIdChars });
  if (role !== undefined) checkChoice("role", role, ["user", "assistant", "system"]);
  if (tokens !== undefined) checkNumber("tokens", tokens, { min: 0, max: 100_000_000 });
  checkParts(parts);
  encodeJson("the message", metadata === undefined ? parts : { parts, metadata }, { maxBytes });
}

/** An id that a caller chose for what it sends: none that an answer, or a wake of an agent, may get. */
export function checkGivenId(what: string, id: unknown): void {
  if (!checkText(what, id, { max: maxIdChars }).startsWith(answerIdPrefix)) return;
  throw new FlotillaError(
    "invalid_input",
    `${what} must not begin with ${answerIdPrefix}: that is for the ids of answers`,
  );
}

function checkParts(parts: unknown): asserts parts is readonly Part[] {
  if (!Array.isArray(parts) || parts.length === 0 || parts.length > maxParts) {
    throw new FlotillaError(
      "invalid_input",
      `parts must be a list of 1 to ${maxParts}, such as [{ "type": "text", "text": "hello" }]`,
    );
  }
  for (const part of parts as unknown[]) {
    const { type, text } = (typeof part === "object" && part !== null ? part : {}) as Part;
    if (typeof type === "string" && type !== "" && (type !== "text" || typeof text === "string")) {
      continue;
    }
    throw new FlotillaError(
      "invalid_input",
      'each part has a `type`, and one of type "text" has a `text`',
    );
  }
  if ((parts as Part[]).every(({ type, text }) => type === "text" && text === "")) {
    throw new FlotillaError(
      "invalid_input",
      "the message is empty: give it text, or another part such as a file",
    );
  }
}

export function checkResults(results: unknown, maxBytes: number): void {
  if (!Array.isArray(results) || results.length === 0 || results.length > maxResults) {
    throw new FlotillaError("invalid_input", `results must be a list of 1 to ${maxResults}`);
  }
  for (const result of results as Partial<Record<string, unknown>>[]) {
    checkText("toolCallId", result?.["toolCallId"], { max: 500 });
    const present = ["output", "errorText", "approved"].filter((name) =>
      Object.hasOwn(result, name),
    );
    const fits =
      present.length === 1 &&
      (present[0] !== "errorText" || typeof result["errorText"] === "string") &&
      (present[0] !== "approved" || typeof result["approved"] === "boolean");
    if (fits) continue;
    throw new FlotillaError(
      "invalid_input",
      "each result must have exactly one of `output`, `errorText` and `approved`",
    );
  }
  encodeJson("the results", results as ToolResult[], { maxBytes });
}
