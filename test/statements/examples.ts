import type { Statement } from "../../src/store/sql.ts";

/** A call with example arguments. It gives a statement, or a list or an object of statements. */
type Example = () => unknown;

/** What a file of statements exports, with an example of each function that makes statements. */
export type SqlFile = {
  readonly exports: Readonly<Record<string, unknown>>;
  readonly examples: Readonly<Record<string, Example>>;
};

/** The files of one room, by path. */
export type RoomStatements = Readonly<Record<string, SqlFile>>;

/** In place of an example: the function makes no statement. */
export const noStatement: Example = () => [];

export function sqlFile<Module extends Record<string, unknown>>(
  exports: Module,
  examples: { readonly [Name in keyof Module]?: Example },
): SqlFile {
  return { exports, examples: examples as SqlFile["examples"] };
}

/** All statements in a value, in order. */
export function statementsIn(value: unknown): Statement[] {
  if (typeof value !== "object" || value === null) return [];
  if ("strings" in value && "parts" in value) return [value as Statement];
  return Object.values(value).flatMap(statementsIn);
}
