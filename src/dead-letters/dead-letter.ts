import type { Row } from "../store/database.ts";
import { errorGroupOf } from "./fingerprint.ts";

/** A failed task. */
export type DeadLetter = {
  readonly taskId: string;
  readonly name: string;
  readonly tenant: string;
  /** The group of its error. */
  readonly group: string;
  readonly code: string;
  readonly message: string;
  /** Failed attempts, and pods that died while they ran it. */
  readonly failures: number;
  readonly deaths: number;
  readonly failedAtMs: number;
  /** The last redrive that restarted it. */
  readonly redriveId: string | null;
  /** Identifies this failure: a task that was restarted and failed again has another token. */
  readonly token: number;
};

const maxMessageChars = 1_000;

/** Converts a failed task's row. `secret` is what the ids of groups are made with. */
export function deadLetterOf(row: Row, secret: string): DeadLetter {
  const { code, message } = storedErrorOf(row["error"]);
  const name = row["name"] as string;
  return {
    taskId: row["task_id"],
    name,
    tenant: row["tenant"],
    group: errorGroupOf({ name, code, message }, secret),
    code,
    message: message.slice(0, maxMessageChars).toWellFormed(),
    failures: Number(row["retry_count"]),
    deaths: Number(row["deaths"]),
    failedAtMs: Number(row["last_update"]),
    redriveId: row["redrive_id"],
    token: Number(row["claim_token"]),
  };
}

/** A row that was written by hand may hold anything in place of an error. */
export function storedErrorOf(text: unknown): { code: string; message: string } {
  if (typeof text !== "string") return { code: "internal", message: "no error was stored" };
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return { code: "internal", message: text };
  }
  const { code, message } = (parsed ?? {}) as { code?: unknown; message?: unknown };
  return {
    code: typeof code === "string" ? code : "internal",
    message: typeof message === "string" ? message : text,
  };
}
