/** Mutations that no simulation can show, because they are about one store: a test of that store does. */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { copyWith, root } from "./mutants.ts";
import { type Mutation, of } from "./mutation.ts";

export type SuiteMutation = Mutation & {
  /** The file that fails with it, and a part of the name of the test. */
  readonly shownBy: { readonly file: string; readonly test: string };
};

const reduced = "src/store/postgres/reduced.test.ts";

export const suiteMutations: readonly SuiteMutation[] = [
  {
    name: "recovery on a reduced store: the row's key is not qualified",
    edits: [
      of("tasks/sql/recover")(
        `rowAddress("task", tasks),
    )}
    ` + "${returning(sql`${tasks}.task_id, ${tasks}.name",
        `rowAddress("task"),
    )}
    ` + "${returning(sql`${tasks}.task_id, ${tasks}.name",
      ),
    ],
    shownBy: { file: "src/tasks/tasks.stores.test.ts", test: "recovery on a reduced Postgres" },
  },
  {
    name: "reads that are undone: not made again",
    edits: [
      of("store/postgres/postgres")(
        "await transact(kind, queries, () => checkWanted(signal))",
        `await connections.run(
          kind,
          undoes?.() ? [...queries, undoing] : queries,
          () => checkWanted(signal),
        )`,
      ),
    ],
    shownBy: { file: reduced, test: "is made again, whether it reads or writes" },
  },
  {
    name: "migrations on a reduced store: their row is not locked",
    edits: [
      of("store/postgres/dialect")(
        "perform 1 from ${schema}.migration where id = 1 for update;",
        "perform 1;",
      ),
    ],
    shownBy: { file: reduced, test: "wait for one that is under way" },
  },
];

const left = ["node_modules", ".git", ".built", "dist"];

/** The test that fails in a copy which has the mutation; undefined if none does. */
export function failureWith({ edits, shownBy }: SuiteMutation): string | undefined {
  const parts = readdirSync(root).filter((name) => !left.includes(name));
  using copy = copyWith(edits, parts);
  const report = join(copy.folder, "report.json");
  const args = ["run", "--project=stores", shownBy.file, "-t", shownBy.test, "--reporter=json"];
  const vitest = join(root, "node_modules/.bin/vitest");
  spawnSync(vitest, [...args, `--outputFile.json=${report}`], {
    cwd: copy.folder,
    stdio: "ignore",
    env: { ...process.env, FLOTILLA_STORES: "all" },
  });
  const { testResults } = JSON.parse(readFileSync(report, "utf8"));
  for (const { assertionResults } of testResults as { assertionResults: Result[] }[]) {
    const failed = assertionResults.find(({ status }) => status === "failed");
    if (failed) return failed.title;
  }
  return undefined;
}

type Result = { readonly status: string; readonly title: string };
