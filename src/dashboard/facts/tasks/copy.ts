import { inexactInteger } from "../../../base/json.ts";

/** The key of a copy: one for each time that a person runs one, with the task that it is a copy of. */
export function copyKey(taskId: string, actId: string): string {
  return `copy:${taskId.slice(0, maxIdChars)}:${actId.slice(0, actIdChars)}`;
}

const maxIdChars = 450;
const actIdChars = 16;
const keyOfCopy = /^copy:(.{1,450}):[0-9a-f]{16}$/su;

/** The task that a task is a copy of; undefined if it is none. */
export function originalOf(key: string | null): string | undefined {
  return key === null ? undefined : keyOfCopy.exec(key)?.[1];
}

/** Why a text can't be the payload of a task; undefined if it can, as far as can be seen here. */
export function checkPayload(text: string): string | undefined {
  if (text.trim() === "") return "Write a payload as JSON: null is one, and so is {}.";
  try {
    JSON.parse(text);
  } catch (error) {
    return `This isn't JSON: ${messageIn(error)}.`;
  }
  const inexact = inexactInteger(text);
  if (inexact === undefined) return undefined;
  return `The number ${inexact.slice(0, 40)} has more digits than numbers of JSON keep: write it as text, in quotes.`;
}

function messageIn(error: unknown): string {
  return error instanceof Error ? error.message.replace(/\.$/, "") : "it ends too early";
}
