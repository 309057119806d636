import type { WhyReasonFacts } from "../../asks/tasks.ts";

/** The evidence of a reason, as rows and tables that a page can show. */
export type ShownEvidence = {
  readonly rows: readonly EvidenceRow[];
  readonly tables: readonly EvidenceTable[];
};

export type EvidenceRow = { readonly label: string; readonly cell: Cell };

export type EvidenceTable = {
  readonly label: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
};

/** A fact: a time, a span, a task, or text. */
export type Cell =
  | { readonly type: "time"; readonly atMs: number }
  | { readonly type: "span"; readonly ms: number }
  | { readonly type: "task"; readonly taskId: string }
  | { readonly type: "text"; readonly text: string };

// Names that end in `Ms` are times, but these.
const spanNames = ["delayMs", "aboutMs"];

export function evidenceOf({ evidence }: Pick<WhyReasonFacts, "evidence">): ShownEvidence {
  const rows: EvidenceRow[] = [];
  const tables: EvidenceTable[] = [];
  for (const [name, value] of Object.entries(evidence)) {
    if (Array.isArray(value)) {
      if (value.length > 0) tables.push(tableOf(name, value as readonly object[]));
    } else if (value !== null && value !== undefined) {
      rows.push({ label: wordsOf(name), cell: cellOf(name, value) });
    }
  }
  return { rows, tables };
}

/** The key of the throttle that a task waits for; undefined where that depends on the task's input. */
export function throttleKeyIn({ evidence }: Pick<WhyReasonFacts, "evidence">): string | undefined {
  const { key } = evidence as { readonly key?: unknown };
  return typeof key === "string" ? key : undefined;
}

function tableOf(name: string, items: readonly object[]): EvidenceTable {
  const names = Object.keys(items[0]!);
  return {
    label: wordsOf(name),
    columns: names.map(wordsOf),
    rows: items.map((item) =>
      names.map((each) => cellOf(each, (item as Readonly<Record<string, unknown>>)[each])),
    ),
  };
}

function cellOf(name: string, value: unknown): Cell {
  if (value === null || value === undefined) return { type: "text", text: "–" };
  if (typeof value === "number" && name.endsWith("Ms"))
    return spanNames.includes(name) ? { type: "span", ms: value } : { type: "time", atMs: value };
  if (name === "taskId" && typeof value === "string") return { type: "task", taskId: value };
  if (typeof value === "boolean") return { type: "text", text: value ? "yes" : "no" };
  if (typeof value === "string" || typeof value === "number")
    return { type: "text", text: String(value) };
  if (Array.isArray(value)) return { type: "text", text: value.map(saidBy).join("; ") || "–" };
  return { type: "text", text: JSON.stringify(value) };
}

/** A part of a list: of a reason of a pod, its words. */
function saidBy(item: unknown): string {
  if (typeof item !== "object" || item === null) return JSON.stringify(item);
  const { text, code } = item as { readonly text?: unknown; readonly code?: unknown };
  const said = [text, code].find((each) => typeof each === "string" && each !== "");
  return typeof said === "string" ? said : JSON.stringify(item);
}

/** A name of a field in words: `maxAttempts` is `max attempts`. */
function wordsOf(name: string): string {
  return name
    .replace(/Ms$/, "")
    .replace(/Id$/, "")
    .replace(/^(?:is|has)(?=[A-Z])/, "")
    .replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
    .trim();
}
