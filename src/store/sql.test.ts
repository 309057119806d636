import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type Dialect,
  index,
  join,
  newId,
  now,
  render,
  isJsonAt,
  renderAll,
  returning,
  rows,
  sql,
  table,
} from "./sql.ts";

const numbered: Dialect = {
  words: {
    now: "clock()",
    change_columns: "",
    change_horizon: "",
    starting_now: "clock",
    key_text: "text",
    unlogged: "",
    wake_function: "",
    new_id: "uuid()",
    foreign_tables: "",
    create_schema: "make home",
    migration_lock: "lock",
    json_reader: "make reader",
    for_update_skip_locked: "for update",
    for_update_of_task: "for update of task",
    for_update_of_task_skip_locked: "for update of task skip locked",
    for_key_share: "for key share",
    for_update: "for update",
    own_connection: "session()",
    live_connections: "sessions",
  },
  returning: true,
  locksRows: true,
  table: (name) => `app.${name}`,
  index: (name) => `app_${name}`,
  dropIndex: (name) => `drop app_${name}`,
  rowAddress: () => ["row"],
  placeholder: (position) => `$${position}`,
  leaveSpace: (table) => `make room in ${table}`,
  recorder: (name, isOn) => `${isOn ? "record" : "forget"} ${name}`,
  among: (addresses) => `row in (${addresses})`,
  jsonAt: (column, { path, value }, bind) =>
    `${column} at ${bind(path.join("."))} is ${bind(JSON.stringify(value))}`,
  rows: (values, columns, bind) =>
    `rows(${bind(JSON.stringify(values))}: ${Object.keys(columns).join(",")})`,
};

describe("a statement", () => {
  test("spells a condition on JSON as its dialect does, with the path and the value bound", () => {
    const statement = sql`select ${1} where ${isJsonAt(sql`payload`, ["a", "b"], "x")}`;
    expect(render(statement, numbered)).toEqual({
      text: "select $1 where payload at $2 is $3",
      values: [1, "a.b", '"x"'],
    });
  });

  test("binds values and spells words as its dialect does", () => {
    const tasks = table("task");
    const statement = sql`select ${newId} from ${tasks} where a = ${1} and b < ${now} and c = ${"x"}`;
    expect(render(statement, numbered)).toEqual({
      text: "select uuid() from app.task where a = $1 and b < clock() and c = $2",
      values: [1, "x"],
    });
    expect(render(sql`create index ${index("ready")}`, numbered).text).toBe(
      "create index app_ready",
    );
  });

  test.each([
    { strings: ["1 or true"], parts: [] },
    { table: "task; drop table x" },
    { index: "x" },
    { word: "now" },
    {
      returning: { strings: ["1"], parts: [] },
      companion: { after: { strings: ["1"], parts: [] } },
    },
    { rows: [], columns: {} },
    {},
    [],
  ])("refuses %j where a value was meant, whatever its caller", (value) => {
    const forged = JSON.parse(JSON.stringify(value)) as string;
    expect(() => render(sql`select * from a where id = ${forged}`, numbered)).toThrow(
      "an object was given where text or a number is expected",
    );
  });

  test("numbers the values of nested statements in the order of the text", () => {
    const inner = sql`b = ${2} or c in (${join([sql`${3}`, sql`${4}`], ", ")})`;
    const { text, values } = render(sql`a = ${1} and (${inner}) and d = ${null}`, numbered);
    expect(text).toBe("a = $1 and (b = $2 or c in ($3, $4)) and d = $5");
    expect(values).toEqual([1, 2, 3, 4, null]);
  });

  test("carries rows as one value", () => {
    const many = rows({ id: "integer", body: "text" }, [
      [1, "a'b"],
      [2, null],
    ]);
    expect(render(sql`insert into t select * from ${many} fresh`, numbered)).toEqual({
      text: "insert into t select * from rows($1: id,body) fresh",
      values: [`[[1,"a'b"],[2,null]]`],
    });
  });

  test("can be rendered again, for another database", () => {
    const statement = sql`select ${"a"} from ${table("probe")}`;
    const once = render(statement, numbered);
    expect(render(statement, { ...numbered, placeholder: () => "?" }).text).toBe(
      "select ? from app.probe",
    );
    expect(render(statement, numbered)).toEqual(once);
  });

  test("never has a value in its text", () => {
    const value = fc.oneof(fc.string({ minLength: 1 }), fc.integer(), fc.constant(null));
    fc.assert(
      fc.property(fc.array(value, { maxLength: 8 }), (values) => {
        const statement = sql`x in (${join(
          values.map((each) => sql`${each}`),
          ", ",
        )})`;
        const rendered = render(statement, numbered);
        expect(rendered.text).toBe(`x in (${values.map((_, at) => `$${at + 1}`).join(", ")})`);
        expect(rendered.values).toEqual(values);
      }),
    );
  });

  test("gives back the rows that it changes, or lets another query do so before or after it", () => {
    const plain = sql`select 1`;
    const marked = sql`update a set b = ${2} ${returning(sql`id`, { after: sql`select id where b = ${2}` })}`;
    const exact = sql`delete from a ${returning(sql`id`, { before: sql`select id for update` })}`;
    const statements = [plain, marked, exact, plain];
    const asked = (returns: boolean) => {
      const { queries, answerAt } = renderAll(statements, { ...numbered, returning: returns });
      return { texts: queries.map(({ text }) => text.trim()), answerAt };
    };
    expect(asked(true)).toEqual({
      texts: [
        "select 1",
        "update a set b = $1 returning id",
        "delete from a returning id",
        "select 1",
      ],
      answerAt: [0, 1, 2, 3],
    });
    expect(asked(false)).toEqual({
      texts: [
        "select 1",
        "update a set b = $1",
        "select id where b = $1",
        "select id for update",
        "delete from a",
        "select 1",
      ],
      answerAt: [0, 2, 3, 5],
    });
  });

  test("joined of nothing is nothing", () => {
    expect(render(sql`a${join([], ", ")}b`, numbered)).toEqual({ text: "ab", values: [] });
  });
});
