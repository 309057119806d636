import type { Dialect } from "../sql.ts";

const byte = (count: number) => `hex(randomblob(${count}))`;

/**
 * SQLite keeps one writer at a time, so there is never a locked row to skip.
 * `jsonb_each` parses its argument once instead of once per column, and exists since 3.51.
 */
export function sqliteDialect(options: { now?: string; jsonbEach: boolean }): Dialect {
  const each = options.jsonbEach ? "jsonb_each" : "json_each";
  return {
    now: options.now ?? "cast(unixepoch('subsec') * 1000 as integer)",
    newId: `lower(${byte(4)} || '-' || ${byte(2)} || '-4' || substr(${byte(2)}, 2) || '-a' || substr(${byte(2)}, 2) || '-' || ${byte(6)})`,
    table: (name) => `flotilla_${name}`,
    placeholder: () => "?",
    rows: (placeholder, columns) => {
      const picks = Object.keys(columns).map((name, at) => `value ->> ${at} as ${name}`);
      return `(select ${picks.join(", ")} from ${each}(${placeholder}))`;
    },
  };
}
