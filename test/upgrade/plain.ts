import { postgresDialect } from "../../src/store/postgres/dialect.ts";
import { type Dialect, renderAll, type Statement } from "../../src/store/sql.ts";
import { sqliteDialect } from "../../src/store/sqlite/dialect.ts";

export const dialects: Readonly<Record<string, Dialect>> = {
  sqlite: sqliteDialect({ jsonbEach: false }),
  postgres: postgresDialect({ schema: "flotilla" }),
};

/** Statements as plain SQL with the values in it, as a person would write them. */
export function plainSql(statements: readonly Statement[], dialect: Dialect): string {
  const marked = { ...dialect, placeholder: (position: number) => `{{${position}}}` };
  return renderAll(statements, marked)
    .queries.map(({ text, values }) =>
      text.replaceAll(/\{\{(\d+)\}\}/g, (_, at: string) => literal(values[Number(at) - 1])),
    )
    .map((text) => `${unindented(text)};\n`)
    .join("\n");
}

export function plainInsert(table: string, row: Readonly<Record<string, string | number>>): string {
  const values = Object.values(row).map(literal);
  return `insert into ${table} (${Object.keys(row).join(", ")})\n  values (${values.join(", ")});\n`;
}

function literal(value: unknown): string {
  if (Array.isArray(value)) return `array[${value.map(literal).join(", ")}]`;
  return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
}

function unindented(text: string): string {
  const lines = text.trim().split("\n");
  const indents = lines.slice(1).map((line) => /^ */.exec(line)![0].length);
  const least = Math.min(...indents, Number.MAX_SAFE_INTEGER);
  return [lines[0], ...lines.slice(1).map((line) => line.slice(least))].join("\n").trimEnd();
}
