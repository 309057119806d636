import { holdTask, rows, sql, type Statement, table } from "../../store/sql.ts";
import { numbersPerWrite } from "./events.ts";
import { fenceColumns, fenceValues, isFenced } from "./run-fence.ts";
import type { RunFinish } from "./runs.ts";

const tasks = table("step_tracker");
const events = table("step_event");

type Noted = { readonly finish: RunFinish; readonly place: number };

function numberOf({ run }: RunFinish, place: number): number {
  return (run.seq + 1) * numbersPerWrite + place;
}

function eventRows(finishes: readonly RunFinish[]) {
  const all = finishes.flatMap((finish): Noted[] =>
    finish.run.events.map((_, place) => ({ finish, place })),
  );
  return rows(
    { ...fenceColumns, seq: "integer", type: "text", attempt: "integer", detail: "text" },
    all.map(({ finish, place }) => {
      const { type, attempt, detail } = finish.run.events[place]!;
      return [...fenceValues(finish), numberOf(finish, place), type, attempt, detail];
    }),
  );
}

const eventColumns = sql`task_id, seq, type, attempt, pod_id, detail`;

/** Notes what happened to runs that are about to be left. Goes before that, under the same conditions. */
export function noteLeft(podId: string, left: readonly RunFinish[], wakes: boolean): Statement {
  return sql`
    insert into ${events} (${eventColumns})
    select noted.task_id, noted.seq, noted.type, noted.attempt, ${podId}, noted.detail
    from ${eventRows(left)} noted join ${tasks} task on task.task_id = noted.task_id
    where ${isFenced(sql`task`, sql`noted`, wakes)}
    ${holdTask}`;
}

/**
 * Notes what happened to runs that go on. Goes after that: while a claim lasts only its own writes are
 * counted, so that the count says which of them was stored, now or by an earlier send.
 */
export function noteKept(podId: string, kept: readonly RunFinish[]): Statement {
  return sql`
    insert into ${events} (${eventColumns})
    select noted.task_id, noted.seq, noted.type, noted.attempt, ${podId}, noted.detail
    from ${eventRows(kept)} noted join ${tasks} task on task.task_id = noted.task_id
    where task.claim_token = noted.token and task.run_seq = noted.run_seq + 1
    on conflict do nothing`;
}

/**
 * Which of these writes were stored, by the last event that each has noted. It says so also of a run that
 * somebody has taken up since, whose row tells no more of it.
 */
export function lookForNotes(podId: string, given: readonly RunFinish[]): Statement {
  const wanted = rows(
    { task_id: "text", seq: "integer", type: "text", detail: "text" },
    given.map((finish) => {
      const { taskId, run } = finish;
      const { type, detail } = run.events.at(-1)!;
      return [taskId, numberOf(finish, run.events.length - 1), type, detail];
    }),
  );
  return sql`
    select wanted.task_id from ${wanted} wanted
    where exists (select 1 from ${events} noted
      where noted.task_id = wanted.task_id and noted.seq = wanted.seq and noted.pod_id = ${podId}
        and noted.type = wanted.type and noted.detail = wanted.detail)`;
}
