import type { DeadLetter } from "./dead-letter.ts";
import type { Picking, Selection } from "./selection.ts";

export type ErrorGroup = {
  readonly group: string;
  readonly name: string;
  readonly code: string;
  /** The message of the latest. */
  readonly message: string;
  readonly tasks: number;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
  /** Some of its tasks, the latest first. */
  readonly taskIds: readonly string[];
};

/** The largest groups, and how many groups and tasks there are in all. */
export type ErrorGroups = {
  readonly groups: readonly ErrorGroup[];
  readonly count: number;
  readonly tasks: number;
};

/** What a selection means as a condition on the view's rows. */
export function conditionOf(selection: Selection, { untilMs, notOf = [] }: Picking) {
  const { group, taskId, name } = selection;
  const conditions: [string, string | number][] = [
    ...(group === undefined ? [] : [["group_id = ?", group] as [string, string]]),
    ...(taskId === undefined ? [] : [["task_id = ?", taskId] as [string, string]]),
    ...(name === undefined ? [] : [["name = ?", name] as [string, string]]),
    ...(untilMs === undefined ? [] : [["failed_at <= ?", untilMs] as [string, number]]),
    ...(notOf.length === 0
      ? []
      : [
          [
            "(redrive_id is null or redrive_id not in (select value from json_each(?)))",
            JSON.stringify(notOf),
          ] as [string, string],
        ]),
  ];
  return {
    where: ["true", ...conditions.map(([text]) => text)].join(" and "),
    values: conditions.map(([, value]) => value),
  };
}

export function toGroup(
  row: Record<string, unknown>,
  latest: Record<string, unknown>[],
): ErrorGroup {
  return {
    group: row["group_id"] as string,
    name: row["name"] as string,
    code: row["code"] as string,
    message: latest[0]!["message"] as string,
    tasks: Number(row["tasks"]),
    firstAtMs: Number(row["first_at"]),
    lastAtMs: Number(row["last_at"]),
    taskIds: latest.map((each) => each["task_id"] as string),
  };
}

export function toLetter(row: Record<string, unknown>): DeadLetter {
  return {
    taskId: row["task_id"] as string,
    name: row["name"] as string,
    tenant: row["tenant"] as string,
    group: row["group_id"] as string,
    code: row["code"] as string,
    message: row["message"] as string,
    failures: Number(row["failures"]),
    deaths: Number(row["deaths"]),
    failedAtMs: Number(row["failed_at"]),
    redriveId: row["redrive_id"] as string | null,
    token: Number(row["token"]),
  };
}
