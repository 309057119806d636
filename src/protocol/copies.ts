/**
 * A copy of a task is known by its unique key, which names the task that it is a copy of: so that a copy
 * that is sent twice is one task, and that its original leads to it.
 */

const maxIdChars = 450;
const actIdChars = 16;
const keyOfCopy = /^copy:(.{1,450}):[0-9a-f]{16}$/su;

/** The key of a copy: one for each time that a person runs one. */
export function copyKey(taskId: string, actId: string): string {
  return `${keyStart(taskId)}:${actId.slice(0, actIdChars)}`;
}

/** The task that a task is a copy of; undefined if it is none. */
export function originalOf(key: string | null): string | undefined {
  return key === null ? undefined : keyOfCopy.exec(key)?.[1];
}

/** The keys of a task's copies are from the first on and below the second. */
export function copyKeysOf(taskId: string): { readonly from: string; readonly below: string } {
  // A semicolon follows a colon in the order of characters.
  return { from: `${keyStart(taskId)}:`, below: `${keyStart(taskId)};` };
}

function keyStart(taskId: string): string {
  return `copy:${taskId.slice(0, maxIdChars)}`;
}
