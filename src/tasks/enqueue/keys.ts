import { yearMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { checkChoice, checkNumber } from "../../base/options.ts";
import type { KeyPolicy, NewTask } from "../sql/enqueue.ts";

/** What becomes of a task whose key another task holds. */
export type OnDuplicate = "existing" | "reject" | "replace";

export type KeyOptions = {
  /**
   * Names the task: enqueueing it again while the first is kept gives the first, unless one of the
   * options below says otherwise. 500 characters at most.
   */
  key?: string;
  /**
   * Where the key is taken: give the `existing` task, `reject` with `duplicate_key`, or `replace`
   * what the existing one is to do if no pod runs it. Default `existing`.
   */
  onDuplicate?: OnDuplicate;
  /** Whether a task holds its key as long as it is `kept`, or only while `unfinished`. Default `kept`. */
  uniqueWhile?: "kept" | "unfinished";
  /** The key is free again this long after its task was created. Default: no such limit. */
  uniqueForMs?: number;
};

export const keyOptionNames = ["key", "onDuplicate", "uniqueWhile", "uniqueForMs"] as const;

/** Checks what is asked of a key. Undefined where it is the usual: the first is given while it is kept. */
export function policyOf(options: KeyOptions): KeyPolicy | undefined {
  const { key, onDuplicate = "existing", uniqueWhile = "kept", uniqueForMs } = options;
  checkChoice("onDuplicate", onDuplicate, ["existing", "reject", "replace"]);
  checkChoice("uniqueWhile", uniqueWhile, ["kept", "unfinished"]);
  if (uniqueForMs !== undefined) checkNumber("uniqueForMs", uniqueForMs, { min: 1, max: yearMs });
  if (key === undefined) {
    const vain = keyOptionNames.find((name) => name !== "key" && options[name] !== undefined);
    if (vain === undefined) return undefined;
    throw new FlotillaError("invalid_option", `${vain} needs a key: there is none to compare`);
  }
  const isUsual = uniqueWhile === "kept" && uniqueForMs === undefined;
  if (onDuplicate === "existing" && isUsual) return undefined;
  return {
    onDuplicate,
    whileUnfinished: uniqueWhile === "unfinished",
    forMs: uniqueForMs ?? null,
  };
}

export function duplicateKey(task: NewTask, holder: string): FlotillaError {
  const { name, key } = task;
  return new FlotillaError(
    "duplicate_key",
    `task ${holder} (${name}) holds the key ${JSON.stringify(key)} already`,
    { details: { taskId: holder, key } },
  );
}

/**
 * Tasks in parts that can be stored one after the other with the outcome of storing each on its own.
 * Statements deal with all rows of a part at once, so one key has one policy in a part.
 */
export function inRounds(news: readonly NewTask[]): readonly (readonly NewTask[])[] {
  if (news.every(({ policy }) => policy === undefined)) return [news];
  const rounds: NewTask[][] = [];
  const latest = new Map<string, { round: number; policy: string }>();
  for (const each of news) {
    let round = 0;
    if (each.key !== null) {
      const id = keyId(each);
      const policy = JSON.stringify(each.policy ?? null);
      const last = latest.get(id);
      if (last) round = last.policy === policy ? last.round : last.round + 1;
      latest.set(id, { round, policy });
    }
    (rounds[round] ??= []).push(each);
  }
  return rounds.map((round) => round ?? []);
}

/** Of tasks that replace the same one, the last: it is as if each had replaced the one before. */
export function lastOfEachKey(news: readonly NewTask[]): NewTask[] {
  return [...new Map(news.map((each) => [keyId(each), each])).values()];
}

export function keyId({ tenant, name, key }: Pick<NewTask, "tenant" | "name" | "key">): string {
  return JSON.stringify([tenant, name, key]);
}
