import { FlotillaError } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import type { TraceHeaders } from "../../base/trace-context.ts";
import type { Enqueued, EnqueueOptions } from "./options.ts";
import type { InputOf } from "../task.ts";
import type { DependencyRef } from "../dependencies.ts";
import type { TaskContract } from "../model.ts";

/** One of several tasks that are stored together and may depend on each other. */
export type GraphRow = {
  /** Names the row for other rows' `after` and for the answer. */
  readonly ref: string;
  readonly task: TaskContract | string;
  readonly input: unknown;
  /** Refs of tasks in the same call, or ids of stored tasks. */
  readonly after?: readonly DependencyRef[];
  readonly options?: Omit<EnqueueOptions, "after" | "tx" | "trace">;
};

export type GraphOptions = { tx?: unknown; trace?: TraceHeaders };

/** Rows whose inputs fit their contracts. */
export type TypedRows<Rows extends readonly GraphRow[]> = {
  readonly [At in keyof Rows]: Rows[At]["task"] extends TaskContract
    ? GraphRow & { readonly input: InputOf<Rows[At]["task"]> }
    : unknown;
};

/** The result of each row, by its ref. */
export type GraphEnqueued<Rows extends readonly GraphRow[]> = {
  readonly [Row in Rows[number] as Row["ref"]]: Enqueued & {
    readonly contract?: Row["task"] extends TaskContract ? Row["task"] : TaskContract;
  };
};

/**
 * Sorts the rows so that each follows its dependencies. Their ids then grow in that order, as they
 * do for tasks stored one by one.
 */
export function inDependencyOrder(rows: readonly GraphRow[]): GraphRow[] {
  const byRef = new Map<string, GraphRow>();
  for (const row of rows) {
    checkOptions("enqueueGraph", row, ["ref", "task", "input", "after", "options"]);
    const { ref } = row;
    if (typeof ref !== "string" || ref === "") {
      throw new FlotillaError("invalid_option", "enqueueGraph: each row needs a `ref`");
    }
    if (byRef.has(ref)) {
      throw new FlotillaError("invalid_option", `enqueueGraph: two rows have the ref "${ref}"`);
    }
    byRef.set(ref, row);
  }
  const ordered: GraphRow[] = [];
  const done = new Set<string>();
  for (const row of rows) walk(row.ref, byRef, done, ordered);
  return ordered;
}

/** Depth-first walk over the dependencies of a row. Iterative, because chains may be long. */
function walk(
  from: string,
  byRef: ReadonlyMap<string, GraphRow>,
  done: Set<string>,
  ordered: GraphRow[],
): void {
  const path: { readonly ref: string; readonly left: string[] }[] = [];
  const onPath = new Set<string>();
  const enter = (ref: string) => {
    if (done.has(ref)) return;
    if (onPath.has(ref))
      throw cycle(path.map((each) => each.ref).slice(path.findIndex((each) => each.ref === ref)));
    path.push({ ref, left: refsOf(byRef.get(ref)!, byRef) });
    onPath.add(ref);
  };
  enter(from);
  for (let last = path.at(-1); last; last = path.at(-1)) {
    const next = last.left.shift();
    if (next !== undefined) {
      enter(next);
      continue;
    }
    path.pop();
    onPath.delete(last.ref);
    done.add(last.ref);
    ordered.push(byRef.get(last.ref)!);
  }
}

function refsOf({ after = [] }: GraphRow, byRef: ReadonlyMap<string, GraphRow>): string[] {
  return after.filter((each): each is string => typeof each === "string" && byRef.has(each));
}

function cycle(refs: readonly string[]): FlotillaError {
  const path = [...refs, refs[0]!];
  const listed = path.length > 12 ? [...path.slice(0, 11), "…", path[0]!] : path;
  return new FlotillaError(
    "dependency_cycle",
    `enqueueGraph: these tasks depend on each other in a cycle: ${listed.join(" after ")}`,
    { details: { cycle: path } },
  );
}

/** Two rows with the same key would be one task, which could depend on itself. */
export function checkKeys(rows: readonly GraphRow[]): void {
  const seen = new Map<string, string>();
  for (const { ref, task, options } of rows) {
    if (options?.key === undefined) continue;
    const name = typeof task === "string" ? task : task.name;
    const id = JSON.stringify([options.tenant ?? "default", name, options.key]);
    const other = seen.get(id);
    if (other !== undefined) {
      throw new FlotillaError(
        "invalid_option",
        `enqueueGraph: the rows "${other}" and "${ref}" have the same key and would be one task: give them different keys`,
      );
    }
    seen.set(id, ref);
  }
}
