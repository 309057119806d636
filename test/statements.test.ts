import { describe, expect, test } from "vitest";
import { postgresDialect } from "../src/store/postgres/dialect.ts";
import { type Dialect, renderAll, type Statement } from "../src/store/sql.ts";
import { sqliteDialect } from "../src/store/sqlite/dialect.ts";
import * as taskState from "../src/tasks/sql/task-state.ts";
import { shippedSources } from "./sources.ts";
import { auditStatements } from "./statements/audit.ts";
import { bulkStatements } from "./statements/bulk.ts";
import { busStatements } from "./statements/bus.ts";
import { changesStatements } from "./statements/changes.ts";
import { deadLetterStatements } from "./statements/dead-letters.ts";
import {
  noStatement,
  type RoomStatements,
  type SqlFile,
  statementsIn,
} from "./statements/examples.ts";
import { fileStatements } from "./statements/files.ts";
import { flowStatements } from "./statements/flows.ts";
import { keyStatements } from "./statements/keys.ts";
import { linkStatements } from "./statements/links.ts";
import { podStatements } from "./statements/pods.ts";
import { promoteStatements } from "./statements/promote.ts";
import { quotaStatements } from "./statements/quotas.ts";
import { stepStatements } from "./statements/steps.ts";
import { scheduleStatements } from "./statements/schedules.ts";
import { seriesStatements } from "./statements/series.ts";
import { sessionStatements } from "./statements/sessions.ts";
import { taskStatements } from "./statements/tasks.ts";
import { testingStatements } from "./statements/testing.ts";
import { throttleStatements } from "./statements/throttles.ts";

const rooms: Record<string, RoomStatements> = {
  pods: podStatements,
  audit: auditStatements,
  bus: busStatements,
  links: linkStatements,
  files: fileStatements,
  quotas: quotaStatements,
  throttles: throttleStatements,
  steps: stepStatements,
  tasks: taskStatements,
  schedules: scheduleStatements,
  "dead-letters": deadLetterStatements,
  flows: flowStatements,
  bulk: bulkStatements,
  sessions: sessionStatements,
  keys: keyStatements,
  series: seriesStatements,
  promote: promoteStatements,
  changes: changesStatements,
  testing: testingStatements,
};

// The time is spelled at length in nearly every statement, and `store` tests it.
const dialects: Record<string, Dialect> = {
  sqlite: sqliteDialect({ now: "now_ms()", jsonbEach: true }),
  postgres: withShortNow(postgresDialect({ schema: "flotilla" })),
};

/** A state of a task that is spelled as a number in a statement. */
const bareNumber =
  /\b(?:parked|deaths|depends)\s*(?:=|<>|!=|[<>]=?|in\s*\()\s*\d|\bthen \d else (?:\S+\.)?depends\b/i;

describe("the statements of each room", () => {
  // A change of SQL is meant to be seen: read the difference, then keep it with `npx vitest -u`.
  for (const room of Object.keys(rooms)) {
    test.each(Object.keys(dialects))(`${room} on %s are as kept`, async (name) => {
      const text = Object.entries(rooms[room]!)
        .map(([path, file]) => renderFile(path, file, dialects[name]!))
        .join("\n");
      await expect(text).toMatchFileSnapshot(`./statements/${room}.${name}.sql`);
    });
  }

  test("have an example of every function that makes one", () => {
    const files = Object.assign({}, ...Object.values(rooms)) as RoomStatements;
    const sqlFiles = shippedSources()
      .map(({ path }) => path)
      .filter((path) => /\/sql(?:\.ts$|\/)/.test(path) && !path.startsWith("src/store/"));
    expect(sqlFiles.flatMap((path) => missing(path, files[path]))).toEqual([]);
    expect(Object.keys(files).filter((path) => !sqlFiles.includes(path))).toEqual([]);
  });

  test("name what tasks wait for, in the words of the partial indexes", () => {
    const schema = shippedSources().find(({ path }) => path === "src/store/schema.ts")!.text;
    const conditions = [
      taskState.isReady,
      taskState.isReadyAlone,
      taskState.isDelayed,
      taskState.waitsForTasks,
      taskState.isBlocked,
      taskState.isLimited,
      taskState.isLimitedAlone,
      taskState.waitsForSignal,
      taskState.isSetAside,
    ].map((condition) => renderAll([condition], dialects["sqlite"]!).queries[0]!.text);
    expect(conditions.filter((text) => !schema.includes(`where ${text}\``))).toEqual([]);
    const spelled = shippedSources().filter(
      ({ path, text }) => /\/sql(?:\.ts$|\/)|schema\.ts$/.test(path) && bareNumber.test(text),
    );
    expect(spelled.map(({ path }) => path)).toEqual([
      "src/store/facts-schema.ts",
      "src/store/schema.ts",
    ]);
  });

  test.each([
    "parked = 4",
    "parked=4",
    "task.parked <> 4",
    "parked != 4",
    "parked >= 4",
    "parked in (0, 4)",
    "PARKED IN(0)",
    "deaths > 0",
    "deaths < 2",
    "depends = 3",
    "when verdict = 2 then 3 else task.depends end",
    "when next.parked = x then 2 else depends end",
  ])("are seen to spell a number that has a name: %s", (text) => {
    expect(text).toMatch(bareNumber);
  });

  test("are missed where there is no example, or one without a statement", () => {
    const exports = { read: () => {}, write: () => {}, toRow: () => {}, limit: 3 };
    expect(missing("src/room/sql.ts", undefined)).toHaveLength(1);
    expect(
      missing("src/room/sql.ts", { exports, examples: { write: () => [], toRow: noStatement } }),
    ).toHaveLength(2);
  });
});

function missing(path: string, file: SqlFile | undefined): string[] {
  const place = `test/statements/${path.split("/")[1]}.ts`;
  if (!file) return [`${path} is not in ${place}: add it there with an example of each function`];
  const functions = Object.keys(file.exports).filter(
    (name) => typeof file.exports[name] === "function",
  );
  return functions.flatMap((name) => {
    const example = file.examples[name];
    if (example === noStatement) return [];
    if (example && statementsIn(example()).length > 0) return [];
    return [
      `${path}: ${name} has no statement in ${place}: add a call with example arguments, or noStatement if it makes none`,
    ];
  });
}

/** Statements that are exported as they are, and those that functions make. */
function renderFile(path: string, { exports, examples }: SqlFile, dialect: Dialect): string {
  const constants = Object.entries(exports).filter(([, value]) => typeof value !== "function");
  const all = [
    ...constants.toSorted(([one], [other]) => (one < other ? -1 : 1)),
    ...Object.entries(examples).map(([name, example]) => [name, example()] as const),
  ];
  return all
    .flatMap(([name, value]) => {
      const statements = statementsIn(value);
      const texts = statements.map((statement) => renderOne(statement, dialect));
      return texts.length === 0 ? [] : [`-- ${path}: ${name}\n${texts.join("\n")}`];
    })
    .join("\n");
}

/** With the query in its place that a database sends which cannot return rows of a change. */
function renderOne(statement: Statement, dialect: Dialect): string {
  const [query] = renderAll([statement], dialect).queries;
  const { queries, answerAt } = renderAll([statement], { ...dialect, returning: false });
  const companion =
    queries.length > 1 ? `-- instead of returning:\n${dedent(queries[answerAt[0]!]!.text)}\n` : "";
  const values = query!.values.length > 0 ? `-- values: ${JSON.stringify(query!.values)}\n` : "";
  return `${dedent(query!.text)}\n${companion}${values}`;
}

function dedent(text: string): string {
  const lines = text
    .replace(/^\s*\n/, "")
    .trimEnd()
    .split("\n");
  const inner = lines.filter((line) => line.trim() !== "").map((line) => line.search(/\S/));
  const indent = Math.min(...inner);
  return lines.map((line) => line.slice(indent).trimEnd()).join("\n");
}

function withShortNow(dialect: Dialect): Dialect {
  return { ...dialect, words: { ...dialect.words, now: "now_ms()", starting_now: "now_ms()" } };
}
