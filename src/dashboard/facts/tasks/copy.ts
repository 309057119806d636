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
